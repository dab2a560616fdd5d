package http_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const events = "/v1/ws/acme/file-activity/events"

func TestStreamSegment(t *testing.T) {
	for _, path := range []string{events, aSession + "/events"} {
		t.Run(path, func(t *testing.T) { testSegment(t, path) })
	}
}

func testSegment(t *testing.T, path string) {
	inBubble(t, func(b *bubble) {
		began := time.Now()
		response := b.request("GET", path, nil)
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-store, no-transform", "X-Accel-Buffering": "no",
		} {
			if got := response.Header.Get(name); got != want {
				b.Errorf("%s: %q", name, got)
			}
		}
		text := b.text(response)
		lasted := time.Since(began)
		if lasted < 12*time.Minute || lasted > 18*time.Minute {
			b.Errorf("the segment lasted %v", lasted)
		}
		retry, comments, _ := strings.Cut(text, "\n\n")
		if !regexp.MustCompile(`^retry: (1\d\d\d|2\d\d\d|3000)$`).MatchString(retry) {
			b.Errorf("it begins with %q", retry)
		}
		if want := strings.Repeat(":\n\n", int(lasted/(15*time.Second))); comments != want {
			b.Errorf("comments %q in %v", comments, lasted)
		}
	})
}

func TestStreamFrames(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var got activity.Subscription
		b.world.follow = func(_ context.Context, s activity.Subscription) error {
			got = s
			for i := range 1000 {
				if err := s.Send(fmt.Appendf(nil, "id: %d\ndata: x\n\n", i)); err != nil {
					return err
				}
				time.Sleep(7 * time.Millisecond) // heartbeats fall between frames
			}
			return entity.Errorf(entity.Forbidden, "access has ended")
		}
		cursor := string(activity.NewCursor(secret, acme).Append(nil, 42))
		text := b.text(b.request("GET", events+"?reads=1&cursor=nonsense", nil, "Last-Event-ID", cursor))
		if got.After != 42 || !got.Reads || got.WorkspaceID != acme || got.Principal.GetUserId() != alice {
			b.Errorf("subscribed with %+v", got)
		}
		frames := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")[1:]
		next, comments := 0, 0
		for _, frame := range frames {
			if frame == ":" {
				comments++
				continue
			}
			if frame != fmt.Sprintf("id: %d\ndata: x", next) {
				b.Fatalf("frame %q, want %d", frame, next)
			}
			next++
		}
		if next != 1000 || comments < 6 {
			b.Errorf("%d frames, %d comments", next, comments)
		}
		b.text(b.request("GET", events+"?cursor="+cursor, nil, "Last-Event-ID", ""))
		if got.After != 42 || got.Reads {
			b.Errorf("subscribed with %+v", got)
		}
	}, func(o *http.Options) { o.Heartbeat = time.Second })
}

func TestStreamRefusals(t *testing.T) {
	w := newFakeEntities()
	s, key, stranger := w.server(t), w.key(alice), w.key("usr_bob")
	cursor := string(activity.NewCursor(secret, "ws_other").Append(nil, 1))
	for _, bad := range []string{"1", cursor, "x"} {
		expect(t, request(t, s, "GET", events, key, "", "Last-Event-ID", bad), 400, `{"error":"invalid_cursor"}`)
		expect(t, request(t, s, "GET", events, stranger, "", "Last-Event-ID", bad), 404, "not_found")
	}
	expect(t, request(t, s, "GET", events, stranger, ""), 404, `{"error":"not_found","message":"not found"}`)
	expect(t, request(t, s, "GET", events, "", ""), 401, "")
	expect(t, request(t, s, "POST", events, key, ""), 405, "")
}

func TestStreamEndsWithItsCredential(t *testing.T) {
	for name, end := range map[string]func(b *bubble){
		"revoked": func(b *bubble) { b.world.change(b.key, func(c *credentialv1.Credential) { c.RevokedAt = 1 }) },
		"gone":    func(b *bubble) { b.world.change(b.key, func(c *credentialv1.Credential) { c.Id = "" }) },
		"expired": func(*bubble) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				if name == "expired" {
					b.world.change(b.key, func(c *credentialv1.Credential) { c.ExpiresAt = time.Now().Add(10 * time.Second).UnixMilli() })
				}
				first, second := b.request("GET", events, nil), b.request("GET", events, nil)
				time.Sleep(10 * time.Second)
				ended := time.Now()
				end(b)
				b.text(first)
				b.text(second)
				if late := time.Since(ended); late > time.Second {
					b.Errorf("ended %v late", late)
				}
			})
		})
	}
}

// TestStreamEndsWithItsKey replaces the key of an app, as a process with other scopes does. The stream with the new key continues.
func TestStreamEndsWithItsKey(t *testing.T) {
	inBubble(t, func(b *bubble) {
		original := b.key
		replace := func(edit func(*credentialv1.Credential)) {
			id, _, _ := parseKey(original)
			text, hash := newKeyOf(kindApp, "app_"+strings.TrimPrefix(id, "key_"))
			b.world.change(original, func(c *credentialv1.Credential) {
				c.Kind, c.SecretSha256 = kindApp, hash
				edit(c)
			})
			b.key = text
		}
		replace(func(c *credentialv1.Credential) {
			c.WorkspaceId, c.Grants = acme, everything
		})
		first := b.request("GET", events, nil)
		time.Sleep(10 * time.Second)
		replace(func(*credentialv1.Credential) {})
		replaced := time.Now()
		second := b.request("GET", events, nil)
		b.text(first)
		if late := time.Since(replaced); late > time.Second {
			b.Errorf("the stream with the key that was replaced ended %v late", late)
		}
		b.text(second)
		if lasted := time.Since(replaced); lasted < 12*time.Minute {
			b.Errorf("the stream with the new key ended after %v", lasted)
		}
	})
}

// TestBlockedLookupDelaysNoOtherCredential revokes one key among hundreds of keys with look-ups that block.
func TestBlockedLookupDelaysNoOtherCredential(t *testing.T) {
	inBubble(t, func(b *bubble) {
		revoked := b.key
		first := b.request("GET", events, nil)
		for range 300 {
			b.key = b.world.key(alice)
			defer b.request("GET", events, nil).Body.Close()
		}
		id, _, _ := parseKey(revoked)
		b.world.mu.Lock()
		b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*credentialv1.DescribeCredential); ok && c.Identity != id {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		b.world.mu.Unlock()
		time.Sleep(5 * time.Second)
		b.world.change(revoked, func(c *credentialv1.Credential) { c.RevokedAt = 1 })
		ended := time.Now()
		b.text(first)
		if late := time.Since(ended); late > time.Second {
			b.Errorf("ended %v late", late)
		}
	})
}

func TestStreamSurvivesFailedLookups(t *testing.T) {
	inBubble(t, func(b *bubble) {
		response := b.request("GET", events, nil)
		b.world.mu.Lock()
		b.world.before = func(context.Context, entity.Command) (proto.Message, error) {
			return nil, entity.Errorf(entity.Unavailable, "busy")
		}
		b.world.mu.Unlock()
		began := time.Now()
		b.text(response)
		if time.Since(began) < 12*time.Minute {
			b.Errorf("ended after %v", time.Since(began))
		}
	})
}

func TestRevocationEndsStreamsHereAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		id, _, _ := parseKey(b.key)
		response := b.request("GET", events, nil)
		b.world.mu.Lock()
		b.world.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*userv1.RevokeApiKey); ok {
				b.world.change(b.key, func(c *credentialv1.Credential) { c.RevokedAt = 5 })
				return &userv1.ApiKey{Id: id, RevokedAt: 5}, nil
			}
			return nil, nil
		}
		b.world.mu.Unlock()
		began := time.Now()
		revoked := b.text(b.request("DELETE", "/v1/user/api-keys/"+id, nil))
		b.text(response)
		if revoked != `{"prefix":"`+user.ShownPrefix(id, false)+`","revokedAt":5}` || time.Since(began) > 0 {
			b.Errorf("%s after %v", revoked, time.Since(began))
		}
		if again := b.request("GET", "/v1/whoami", nil); again.StatusCode != 401 {
			b.Errorf("the revoked key opens: %d", again.StatusCode)
		}
	})
}

func TestDrainEndsStreamsAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		response := b.request("GET", events, nil)
		go b.server.Shutdown(context.Background())
		began := time.Now()
		b.text(response)
		if time.Since(began) > 0 {
			b.Errorf("ended after %v", time.Since(began))
		}
		expect(b, request(b, b.server, "GET", events, b.key, ""), 503, "shutting down")
		expect(b, request(b, b.server, "GET", "/readyz", "", ""), 503, "shutting down")
		expect(b, request(b, b.server, "GET", "/healthz", "", ""), 200, `{"status":"ok"}`)
	})
}

// A stream ends cleanly even if the machine is so busy that it ends late.
func TestDrainEndsStreamsCleanlyUnderLoad(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.follow = func(ctx context.Context, _ activity.Subscription) error {
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			return nil
		}
		response := b.request("GET", events, nil)
		go b.server.Shutdown(context.Background())
		b.text(response)
	})
}

func TestDrainDoesNotWaitForSlowReaders(t *testing.T) {
	inBubble(t, func(b *bubble) {
		sent := make(chan error, 1)
		b.world.follow = func(_ context.Context, s activity.Subscription) error {
			err := s.Send(make([]byte, 1<<20))
			sent <- err
			return err
		}
		response := b.request("GET", events, nil)
		defer response.Body.Close()
		synctest.Wait()
		began := time.Now()
		b.server.Shutdown(context.Background())
		if err := <-sent; err == nil || time.Since(began) > 2*time.Second {
			b.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSlowReaderIsCutOff(t *testing.T) {
	inBubble(t, func(b *bubble) {
		sent := make(chan error, 1)
		b.world.follow = func(_ context.Context, s activity.Subscription) error {
			err := s.Send(make([]byte, 1<<20))
			sent <- err
			return err
		}
		response := b.request("GET", events, nil)
		defer response.Body.Close()
		began := time.Now()
		if err := <-sent; err == nil || time.Since(began) != time.Minute {
			b.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// armed counts the calls that set a write deadline.
type armed struct {
	*httptest.ResponseRecorder
	times int
}

func (a *armed) SetWriteDeadline(time.Time) error { a.times++; return nil }

func TestDeadlinesAreSetSeldom(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.follow = func(_ context.Context, s activity.Subscription) error {
			for range 1000 {
				s.Send([]byte("data: x\n\n"))
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		r := httptest.NewRequest("GET", events, nil)
		r.Header.Set("Authorization", "Bearer "+b.key)
		w := &armed{ResponseRecorder: httptest.NewRecorder()}
		b.server.ServeHTTP(w, r)
		if w.times > 3 {
			b.Errorf("%d times for 1000 frames in a second", w.times)
		}
	})
}

func TestStreamNoticesThatTheClientLeft(t *testing.T) {
	inBubble(t, func(b *bubble) {
		left := make(chan struct{})
		b.world.follow = func(ctx context.Context, _ activity.Subscription) error { <-ctx.Done(); close(left); return nil }
		response := b.request("GET", events, nil)
		began := time.Now()
		response.Body.Close()
		<-left
		if time.Since(began) > 0 {
			b.Errorf("after %v", time.Since(began))
		}
	})
}

func TestStreamLimits(t *testing.T) {
	inBubble(t, func(b *bubble) {
		open := []io.Closer{b.request("GET", events, nil).Body, b.request("GET", events, nil).Body}
		refused := request(b, b.server, "GET", events, b.key, "")
		expect(b, refused, 429, "too many open streams with this credential")
		if refused.Header().Get("Retry-After") != "5" {
			b.Errorf("%v", refused.Header())
		}
		expect(b, request(b, b.server, "GET", events, b.world.key("usr_bob"), ""), 404, "")
		b.key = b.world.key(alice)
		open = append(open, b.request("GET", events, nil).Body)
		b.key = b.world.key(alice)
		expect(b, request(b, b.server, "GET", events, b.key, ""), 429, "too many open streams of this person")
		open[0].Close()
		synctest.Wait()
		open = append(open, b.request("GET", events, nil).Body)
		for _, o := range open {
			o.Close()
		}
		synctest.Wait()
	}, func(o *http.Options) { o.Limits.Streams, o.Limits.CredentialStreams = 3, 2 })
}

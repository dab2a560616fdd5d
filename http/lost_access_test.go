package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// accessLosses are the ways in which the editor of a scene loses the access to change files, with the refusal that follows.
var accessLosses = []struct {
	name   string
	lose   func(*scene)
	status int
	code   string
}{
	{"removed", func(sc *scene) { sc.must("DELETE", "/members/"+sc.people["editor"].id, "") }, 404, "not_found"},
	{"demoted", func(sc *scene) { sc.must("PATCH", "/members/"+sc.people["editor"].id, `{"role":"viewer"}`) }, 403, "forbidden"},
	{"suspended", func(sc *scene) { sc.must("PUT", "/admin/suspension", `{"suspended":true}`) }, 403, "workspace_suspended"},
	{"revoked", func(sc *scene) {
		id, _, _ := parseKey(sc.people["editor"].key)
		sc.ask(sc.t, entity.KindUser, sc.people["editor"].id, &userv1.RevokeApiKey{KeyId: id})
		sc.settle(sc.t, sc.people["editor"].id)
	}, 401, "unauthorized"},
	{"disabled", func(sc *scene) { sc.ask(sc.t, entity.KindUser, sc.people["editor"].id, &userv1.Disable{}) }, 401, "unauthorized"},
}

// must sends a request of the owner and expects it to succeed.
func (sc *scene) must(method, path, body string) {
	sc.t.Helper()
	if got := sc.drive(method, path, "owner", body); got.Code/100 != 2 {
		sc.t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
	}
}

// drive sends a request to a path below the workspace's.
func (sc *scene) drive(method, path, as, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(sc.t.Context(), method, "/v1/ws/"+sc.slug+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+sc.people[as].key)
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	sc.stage.node.Server.ServeHTTP(w, r)
	return w
}

// interruptedBody is a body that calls between while it arrives.
type interruptedBody struct {
	parts []string
	// between is called before the last part is read.
	between func()
}

func (b *interruptedBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	if len(b.parts) == 1 {
		b.between()
	}
	n := copy(p, b.parts[0])
	b.parts = b.parts[1:]
	return n, nil
}

func TestUploadIsAuthorizedAtItsEnd(t *testing.T) {
	for _, loss := range accessLosses {
		t.Run(loss.name, func(t *testing.T) {
			b := newBoundary(t)
			sc := b.scene(t, visitor{name: "editor"}, true)
			for _, path := range []string{"/drive/a.txt", "/drive/new.txt"} {
				before := sc.drive("GET", "/file-activity/feed", "owner", "").Body.String()
				lose := func() { loss.lose(sc) }
				if path != "/drive/a.txt" {
					lose = func() {}
				}
				r := httptest.NewRequestWithContext(t.Context(), "PUT", "/v1/ws/"+sc.slug+path, &interruptedBody{[]string{"over", "written"}, lose})
				r.Header.Set("Authorization", "Bearer "+sc.people["editor"].key)
				w := httptest.NewRecorder()
				sc.stage.node.Server.ServeHTTP(w, r)
				sc.expectRefusal(t, path, server.Route{}, w, loss.status, loss.code)
				if after := sc.drive("GET", "/file-activity/feed", "owner", "").Body.String(); after != before {
					t.Errorf("%s: the feed was %s and is %s", path, before, after)
				}
			}
			if got := sc.drive("GET", "/drive/a.txt", "owner", ""); got.Body.String() != "a" {
				t.Errorf("the file is %d %q", got.Code, got.Body)
			}
		})
	}
}

const takeLock = `<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>`

func TestLockEndsWithItsOwnersAccess(t *testing.T) {
	for _, loss := range accessLosses[:2] {
		t.Run(loss.name, func(t *testing.T) {
			sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
			if got := sc.drive("LOCK", "/drive/a.txt", "editor", takeLock); got.Code != 200 {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			if got := sc.drive("PUT", "/drive/a.txt", "owner", "2"); got.Code != 423 {
				t.Errorf("while the lock is held: %d %s", got.Code, got.Body)
			}
			loss.lose(sc)
			if got := sc.drive("PUT", "/drive/a.txt", "owner", "2"); got.Code != 204 {
				t.Errorf("afterwards: %d %s", got.Code, got.Body)
			}
		})
	}
}

// A lock that is requested before the access ends, and created after it, is not stored.
func TestLockIsAuthorizedAtItsEnd(t *testing.T) {
	for _, path := range []string{"/drive/a.txt", "/drive/new.txt"} {
		sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
		body := &interruptedBody{[]string{takeLock[:20], takeLock[20:]}, func() { accessLosses[0].lose(sc) }}
		r := httptest.NewRequestWithContext(t.Context(), "LOCK", "/v1/ws/"+sc.slug+path, body)
		r.Header.Set("Authorization", "Bearer "+sc.people["editor"].key)
		w := httptest.NewRecorder()
		sc.stage.node.Server.ServeHTTP(w, r)
		sc.expectRefusal(t, path, server.Route{}, w, 404, "not_found")
		if got := sc.drive("PUT", path, "owner", "2"); got.Code/100 != 2 {
			t.Errorf("the owner's upload: %d %s", got.Code, got.Body)
		}
	}
}

func TestOwnersBreakLocks(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	token := sc.drive("LOCK", "/drive/a.txt", "editor", takeLock).Header().Get("Lock-Token")
	if got := sc.drive("UNLOCK", "/drive/a.txt", "target", "", "Lock-Token", token); got.Code != 403 || !strings.Contains(got.Body.String(), "lock_token_mismatch") {
		t.Errorf("another editor: %d %s", got.Code, got.Body)
	}
	if found := sc.drive("PROPFIND", "/drive/a.txt", "owner", "", "Depth", "0").Body.String(); !strings.Contains(found, strings.Trim(token, "<>")) {
		t.Errorf("the owner does not find the token: %s", found)
	}
	if got := sc.drive("UNLOCK", "/drive/a.txt", "owner", "", "Lock-Token", token); got.Code != 204 {
		t.Errorf("an owner: %d %s", got.Code, got.Body)
	}
	if got := sc.drive("PUT", "/drive/a.txt", "owner", "2"); got.Code != 204 {
		t.Errorf("afterwards: %d %s", got.Code, got.Body)
	}
}

// refuse makes the credential or the workspace refuse access from now on.
func (b *bubble) refuse(how string) {
	switch how {
	case "revoked":
		b.world.change(b.key, func(c *credentialv1.Credential) { c.RevokedAt = 1 })
	case "removed":
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.world.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
			if _, is := c.Message.(*workspacev1.Authorize); is {
				return nil, entity.Errorf(entity.NotFound, "no such workspace")
			}
			return nil, nil
		}
	}
}

var refusals = map[string]int{"revoked": 401, "removed": 404}

func TestUploadEndsWithTheAccess(t *testing.T) {
	for how, status := range refusals {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
					if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the body ended with %v", err)
					}
				}
				var lost time.Time
				go func() {
					time.Sleep(10 * time.Minute)
					lost = time.Now()
					b.refuse(how)
				}()
				got := b.request("PUT", "/v1/ws/acme/drive/big", &slowBody{parts: 1000, every: 29 * time.Second, size: 32 << 10})
				if late := time.Since(lost); got.StatusCode != status || late > time.Second {
					b.Errorf("%d after %v", got.StatusCode, late)
				}
				got.Body.Close()
			})
		})
	}
}

// TestMessageEndsWithTheAccess loses the access while a request that waits has not made its message durable yet.
func TestMessageEndsWithTheAccess(t *testing.T) {
	for how, status := range refusals {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				lost := make(chan struct{})
				b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
					if _, is := c.Message.(*wirev1.List); !is { // it looks for an earlier request with the same id
						return nil, nil
					}
					close(lost)
					<-ctx.Done()
					return nil, entity.Errorf(entity.Unavailable, "the server did not respond in time")
				}
				go func() {
					<-lost
					b.refuse(how)
				}()
				path := "/v1/ws/acme/agent/sessions/" + session.IDPrefix + "01jd0000000000000000000001/messages/wait"
				got := b.request("POST", path, strings.NewReader(`{"text":"Hello","clientRequestId":"00000000-0000-4000-8000-000000000001"}`),
					"Content-Type", "application/json")
				if text := b.text(got); got.StatusCode != status {
					b.Errorf("%d %s, want %d", got.StatusCode, text, status)
				}
			})
		})
	}
}

func TestDownloadEndsWithTheAccess(t *testing.T) {
	for how := range refusals {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				ended := make(chan error, 1)
				b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
					w.Header().Set("Content-Length", fmt.Sprint(1<<30))
					_, err := io.Copy(w, io.LimitReader(neverEnding{}, 1<<30))
					ended <- err
				}
				response := b.request("GET", "/v1/ws/acme/drive/big", nil)
				defer response.Body.Close()
				var lost time.Time
				go func() {
					time.Sleep(10*time.Minute + 100*time.Millisecond)
					lost = time.Now()
					b.refuse(how)
				}()
				buffer := make([]byte, 64<<10)
				var err error
				for err == nil {
					_, err = io.ReadFull(response.Body, buffer)
					time.Sleep(time.Second / 8)
				}
				if late := time.Since(lost); err == io.EOF || late > time.Second+time.Second/4 {
					b.Errorf("the client sees %v after %v", err, late)
				}
				if err := <-ended; err == nil {
					b.Error("the drive sent all of it")
				}
			})
		})
	}
}

// Errors of a workspace that do not concern access end no transfer.
func TestTransfersSurviveFailedLookups(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if n, err := io.Copy(io.Discard, r.Body); n != 60*16<<10 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			w.WriteHeader(201)
		}
		go func() {
			time.Sleep(time.Minute)
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			b.world.before = func(context.Context, entity.Command) (proto.Message, error) {
				return nil, entity.Errorf(entity.Unavailable, "busy")
			}
		}()
		if got := b.request("PUT", "/v1/ws/acme/drive/big", &slowBody{parts: 60, every: 10 * time.Second, size: 16 << 10}); got.StatusCode != 201 {
			b.Errorf("%d", got.StatusCode)
		}
		synctest.Wait()
	})
}

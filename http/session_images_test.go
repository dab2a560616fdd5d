package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/tests/race"
)

// TestImages sends images at their limits, reads them as a runner does, and deletes their session.
func TestImages(t *testing.T) {
	race.Skip(t, "it sends many megabytes one after the other")
	testImages(t, newStage)
}

func TestImagesInSplitMode(t *testing.T) { testImages(t, newSplitStage) }

func testImages(t *testing.T, newStage func(*testing.T) *stage) {
	s := newStage(t)
	s.as = "alice"
	s.person(s.as)
	workspaceID, sessionID := s.startSession("acme", "Hello")
	s.wait(workspaceID)
	image := func(size int) []byte {
		return append([]byte("GIF89a"), bytes.Repeat([]byte{7}, size-6)...)
	}
	send := func(sizes ...int) (int, string) {
		var images []string
		for _, size := range sizes {
			images = append(images, fmt.Sprintf(`{"mediaType":"image/gif","data":%q}`, base64.StdEncoding.EncodeToString(image(size))))
		}
		w := s.send("POST", "/v1/ws/acme/agent/sessions/"+sessionID+"/messages", fmt.Sprintf(`{"text":%q,"images":[%s]}`,
			strings.Repeat("ü", 200_000), strings.Join(images, ",")))
		return w.Code, w.Body.String()
	}
	const mib = 1 << 20
	for _, test := range []struct {
		sizes   []int
		status  int
		message string
	}{
		{[]int{5 * mib, 5 * mib, 2 * mib}, 200, ""},
		{[]int{5*mib + 1}, 400, "images/0/data must have"},
		{[]int{5 * mib, 5 * mib, 2*mib + 1}, 400, "in all"},
		{[]int{5 * mib, 5 * mib, 5 * mib}, 413, "payload_too_large"},
	} {
		if status, body := send(test.sizes...); status != test.status || !strings.Contains(body, test.message) {
			t.Errorf("%v: %d %s", test.sizes, status, body)
		}
	}
	for _, size := range []int{5 * mib, 2 * mib} {
		sum := sha256.Sum256(image(size))
		if stored, err := s.node.Drives.ReadImage(t.Context(), workspaceID, sessionID, sum[:]); err != nil || !bytes.Equal(stored, image(size)) {
			t.Errorf("an image of %d bytes is stored with %d: %v", size, len(stored), err)
		}
	}
	if w := s.send("DELETE", "/v1/ws/acme/agent/sessions/"+sessionID, ""); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	deadline, again := time.After(longest), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for removed := false; !removed; { // by a task
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("the images of the deleted session remain")
		}
		_, err := os.Stat(filepath.Join(s.node.Drives.Dir(), workspaceID, "images", sessionID))
		removed = errors.Is(err, fs.ErrNotExist)
	}
	reply, err := s.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(),
		Message: &wirev1.List{Name: session.ImageList, Prefix: []byte(session.Key(sessionID, "")), Limit: 1},
	})
	if err != nil || len(reply.(*wirev1.Page).GetRows()) > 0 {
		t.Errorf("rows of images remain: %v, %v", reply, err)
	}
}

// TestImagesOfARefusedChild starts a child while its parent is being deleted.
func TestImagesOfARefusedChild(t *testing.T) {
	w := newFakeEntities()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch c.Message.(type) {
		case *sessionv1.DescribeSession:
			return &sessionv1.Description{Session: &sessionv1.Session{Started: true}}, nil
		case *sessionv1.AdmitChild:
			return nil, entity.Errorf(entity.NotFound, "no such session")
		default:
			return nil, nil
		}
	}
	body := fmt.Sprintf(`{"prompt":"Look","images":[{"mediaType":"image/gif","data":%q}]}`, base64.StdEncoding.EncodeToString([]byte("GIF89a")))
	kept := 0
	server := w.server(t, func(o *http.Options) {
		o.Sessions.Images = fakeImages(func() error { kept++; return nil })
	})
	expect(t, request(t, server, "POST", aSession+"/sessions", w.key(alice), body), 404, "not_found")
	if kept > 0 {
		t.Errorf("%d images were stored", kept)
	}
}

// fakeImages implements api.Images. It is called before the input is committed.
type fakeImages func() error

func (f fakeImages) KeepImages(_ context.Context, _, _ string, _ map[string][]byte, commit func() error) error {
	if err := f(); err != nil {
		return err
	}
	return commit()
}

// TestImagesWithoutSpace sends an input with images that have no space: the answer says so, and the input is not accepted.
func TestImagesWithoutSpace(t *testing.T) {
	w := newFakeEntities()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch c.Message.(type) {
		case *sessionv1.DescribeSession, *sessionv1.AdmitChild:
			return &sessionv1.Description{Session: &sessionv1.Session{Started: true}}, nil
		default:
			return nil, nil
		}
	}
	server := w.server(t, func(o *http.Options) {
		o.Sessions.Images = fakeImages(func() error { return entity.Errorf(entity.InsufficientStorage, "the quota is exhausted") })
	})
	image := fmt.Sprintf(`"images":[{"mediaType":"image/gif","data":%q}]}`, base64.StdEncoding.EncodeToString([]byte("GIF89a")))
	for path, body := range map[string]string{"/messages": `{"text":"Look",`, "/sessions": `{"prompt":"Look",`} {
		expect(t, request(t, server, "POST", aSession+path, w.key(alice), body+image), 507, "insufficient_storage")
	}
	if n := w.count(&sessionv1.SendInput{}) + w.count(&sessionv1.StartSession{}); n > 0 {
		t.Errorf("%d inputs were accepted", n)
	}
}

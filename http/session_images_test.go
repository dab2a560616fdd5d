package http_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// TestImages sends images at their limits, and reads them as a runner does.
func TestImages(t *testing.T) {
	s := newStage(t)
	s.as = "alice"
	s.person(s.as)
	workspaceID, sessionID := s.startSession("acme", "Hello")
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
	reply, err := s.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(),
		Message: &wirev1.List{Name: session.ImageList, Prefix: []byte(session.Key(sessionID, "")), Limit: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	var stored sessionv1.StoredImage
	if err := proto.Unmarshal(reply.(*wirev1.Page).GetRows()[0], &stored); err != nil {
		t.Fatal(err)
	}
	if n := len(stored.GetContent()); stored.GetMediaType() != "image/gif" || !bytes.Equal(stored.GetContent(), image(n)) {
		t.Errorf("an image of %d bytes is stored as %s", n, stored.GetMediaType())
	}
}

// TestImagesOfARefusedChild starts a child whose parent is deleted at the moment. Nothing would delete the images of a child that no
// parent has admitted.
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
	expect(t, request(t, w.server(t), "POST", aSession+"/sessions", w.key(alice), body), 404, "not_found")
	if n := w.count(&sessionv1.StoreImage{}); n > 0 {
		t.Errorf("%d images were stored", n)
	}
}

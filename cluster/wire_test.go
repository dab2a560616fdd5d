package cluster_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func TestEncodeCommand(t *testing.T) {
	sent := entity.Command{
		Kind: entity.KindUser, Identity: "usr_1", RequestID: "req_1", ID: "cmd_1",
		Source: &entity.Source{Partition: 3, Stream: "slug/a", Version: 4, Sequence: 5, Index: 6},
		Principal: &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, CredentialId: "ogr_1", UserId: "usr_1",
			Grants: []string{entity.FilesRead}, WorkspaceId: "ws_1",
		},
		Message: &userv1.IssueApiKey{KeyId: "key_1", Name: "n", SecretSha256: []byte{1, 2}, ExpiresAt: 9},
	}
	b, err := cluster.EncodeCommand(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cluster.DecodeCommand(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.Kind != sent.Kind || got.Identity != sent.Identity || got.RequestID != sent.RequestID || got.ID != sent.ID ||
		got.Source == nil || *got.Source != *sent.Source ||
		!proto.Equal(got.Principal, sent.Principal) || !proto.Equal(got.Message, sent.Message) {
		t.Errorf("%+v became %+v", sent, got)
	}
}

func TestEncodeReplyWithError(t *testing.T) {
	sent := &entity.Error{Code: entity.Unavailable, Message: "later", RetryAfter: 1500 * time.Millisecond}
	b, err := cluster.EncodeReply(nil, sent)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.DecodeReply(b)
	var got *entity.Error
	if !errors.As(err, &got) || *got != *sent {
		t.Errorf("%v became %v", sent, err)
	}
}

func TestDecodeUnknownMessage(t *testing.T) {
	b, err := proto.Marshal(&wirev1.Command{Kind: "user", Identity: "usr_1", Name: "atelier.none.v1.Nothing"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.DecodeCommand(b); err == nil {
		t.Error("an unknown message type was decoded")
	}
}

func FuzzDecode(f *testing.F) {
	b, _ := cluster.EncodeCommand(entity.Command{Kind: "activity", Message: &activityv1.ReadFeed{Path: "a"}})
	f.Add(b)
	b, _ = cluster.EncodeReply(&activityv1.Page{Items: []byte("x")}, nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := cluster.DecodeCommand(b); err == nil && c.Message == nil {
			t.Error("DecodeCommand returned a command without a message")
		}
		_, _ = cluster.DecodeReply(b)
	})
}

func TestPartition(t *testing.T) {
	r := cluster.NewRouter(12, false)
	if r.Partition("ws_1") != r.Partition("ws_1/ses_2") {
		t.Error("an owned entity is in another partition than its owner")
	}
	used := map[any]bool{}
	for i := range 200 {
		used[r.Partition(string(rune('a'+i%26))+string(rune('a'+i/26)))] = true
	}
	if len(used) != 12 {
		t.Errorf("%d of 12 partitions are used", len(used))
	}
}

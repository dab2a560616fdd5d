package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestIsEssential verifies on which side of the line commands are: a command that frees space is essential, a command that a user
// can repeat is not.
func TestIsEssential(t *testing.T) {
	intend := func(kind activityv1.Kind) proto.Message {
		return &activityv1.Intend{Intent: &activityv1.Intent{Operation: &activityv1.Operation{Kind: kind}}}
	}
	user := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}
	for _, test := range []struct {
		principal *wirev1.Principal
		message   proto.Message
		want      bool
	}{
		{user, intend(activityv1.Kind_KIND_DELETE), true},
		{user, intend(activityv1.Kind_KIND_WRITE), false},
		{user, intend(activityv1.Kind_KIND_RENAME), false},
		{entity.Platform(), &activityv1.Complete{}, true},
		{entity.Platform(), &activityv1.Record{}, false},
		{user, &sessionv1.DeleteSession{}, true},
		{user, &sessionv1.SendInput{}, false},
		{entity.Platform(), &sessionv1.RecordRows{}, false},
		{user, &appv1.SetDisabled{Disabled: true}, true},
		{user, &appv1.SetDisabled{}, false},
		{user, &workspacev1.Suspend{}, true},
		{user, &workspacev1.Resume{}, false},
		{entity.Platform(), &workspacev1.Resume{}, true},
		{entity.Platform(), &userv1.Disable{}, true},
		{entity.Platform(), &userv1.OfferOneTimeLink{}, true},
		{entity.Platform(), &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{MailId: "mail_1"}}, false},
		{user, &userv1.ChangeProfile{}, false},
		{entity.Platform(), &userv1.StartBrowserSession{}, false},
	} {
		if got := kinds.IsEssential(entity.Command{Principal: test.principal, Message: test.message}); got != test.want {
			t.Errorf("%s by %v: %v", proto.MessageName(test.message), test.principal.GetKind(), got)
		}
	}
}

// TestIsLimited verifies which commands need room of the workspace in the journal: the commands of members, unless they are essential,
// and the commands that store the rows of turns.
func TestIsLimited(t *testing.T) {
	user := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}
	write := &activityv1.Intend{Intent: &activityv1.Intent{Operation: &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE}}}
	for _, test := range []struct {
		command entity.Command
		want    bool
	}{
		{entity.Command{Principal: user, Message: &sessionv1.SendInput{}}, true},
		{entity.Command{Principal: user, Message: &sessionv1.StartSession{}}, true},
		{entity.Command{Principal: user, Message: write}, true},
		{entity.Command{Principal: user, Message: &sessionv1.DeleteSession{}}, false},
		{entity.Command{Principal: user, Message: &workspacev1.Suspend{}}, false},
		{entity.Command{Principal: user, Message: &workspacev1.Resume{}}, false},
		{entity.Command{Principal: user, Message: &workspacev1.RemoveMember{}, Source: &entity.Source{}}, false},
		{entity.Command{Principal: user, Message: &sessionv1.SendInput{}, Source: &entity.Source{}}, false},
		{entity.Command{Principal: entity.Platform(), Message: &sessionv1.RecordRows{}}, true},
		{entity.Command{Principal: entity.Platform(), Message: &sessionv1.ClaimTurn{}}, false},
		{entity.Command{Principal: entity.Platform(), Message: &sessionv1.EndTurn{}}, false},
		{entity.Command{Principal: entity.Platform(), Message: &activityv1.Record{}}, false},
		{entity.Command{Principal: entity.Platform(), Message: &activityv1.Complete{}}, false},
	} {
		if got := kinds.IsLimited(test.command); got != test.want {
			t.Errorf("%s by %v: %v", proto.MessageName(test.command.Message), test.command.Principal.GetKind(), got)
		}
	}
}

// TestRemovalsAreEssential verifies that no command with the name of a removal was forgotten.
func TestRemovalsAreEssential(t *testing.T) {
	verbs := []string{"Remove", "Delete", "Revoke", "Release", "Retire", "Erase", "Leave", "Forget", "Disable", "Suspend", "Clear", "Unlink", "Halt"}
	seen := 0
	protoregistry.GlobalTypes.RangeMessages(func(message protoreflect.MessageType) bool {
		m := message.New().Interface()
		isRemoval := slices.ContainsFunc(verbs, func(verb string) bool { return strings.HasPrefix(string(message.Descriptor().Name()), verb) })
		isCommand := slices.ContainsFunc(kinds.All, func(k entity.Kind) bool { return k.IsCommand(m) })
		if !isRemoval || !isCommand {
			return true
		}
		seen++
		if !kinds.IsEssential(entity.Command{Principal: entity.Platform(), Message: m}) {
			t.Errorf("%s is refused while the disk is full", message.Descriptor().FullName())
		}
		return true
	})
	if seen < 20 {
		t.Errorf("%d commands were compared", seen)
	}
}

// TestIsRationed verifies that sign-ins are rationed, and further credentials are not accepted at all.
func TestIsRationed(t *testing.T) {
	register := func(kind wirev1.CredentialKind) proto.Message {
		return &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{Kind: kind}}
	}
	for _, test := range []struct {
		message proto.Message
		want    bool
	}{
		{&userv1.StartBrowserSession{}, true},
		{&userv1.SetPassword{}, true},
		{&userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{MailId: "mail_1"}}, true},
		{&userv1.IssueApiKey{}, false},
		{&userv1.LinkIdentity{}, false},
		{register(wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION), true},
		{register(wirev1.CredentialKind_CREDENTIAL_KIND_USER), false},
	} {
		if got := kinds.IsRationed(entity.Command{Principal: entity.Platform(), Message: test.message}); got != test.want {
			t.Errorf("%s: %v", proto.MessageName(test.message), got)
		}
	}
}

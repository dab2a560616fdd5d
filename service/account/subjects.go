package account

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/subject"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

func subjectKey(identity *userv1.LinkedIdentity) string {
	return subject.Key(identity.GetIssuer(), identity.GetSubject())
}

// ResolveSubject returns the account that a subject of an OpenID Connect provider belongs to; "" if the subject is free. It waits for the
// outcome of a claim in progress.
func ResolveSubject(r service.Request, identity *userv1.LinkedIdentity) (userID string, err error) {
	resolve := func() (string, error) {
		found, err := service.SendAsPlatform[*subjectv1.Subject](r, entity.KindSubject, subjectKey(identity), &subjectv1.ResolveSubject{})
		return found.GetUserId(), err
	}
	if userID, err = resolve(); err != nil || userID == "" {
		return "", err
	}
	if err := r.Settle(entity.KindSubject, subjectKey(identity)); err != nil {
		return "", err
	}
	return resolve()
}

// ClaimSubject links a free subject to an account, and returns the account that the subject belongs to now. That is another account if
// the subject was linked to it before subjects were claimed, or is claimed for it at the same time; "" if the account refuses the link.
func ClaimSubject(r service.Request, identity *userv1.LinkedIdentity, userID string) (owner string, err error) {
	if err := claim(r, identity, userID); err != nil && !entity.HasCode(err, entity.Forbidden) {
		return "", err
	}
	return ResolveSubject(r, identity)
}

// claim claims a subject for an account, and waits until it is linked or released. Errors: forbidden if it belongs to another
// account. identity has the time of an earlier link.
func claim(r service.Request, identity *userv1.LinkedIdentity, userID string) error {
	if _, err := r.Ask(service.PlatformCommand(r, entity.KindSubject, subjectKey(identity), &subjectv1.ClaimSubject{
		Issuer: identity.GetIssuer(), Subject: identity.GetSubject(), UserId: userID, LinkedAt: identity.GetLinkedAt(),
	})); err != nil {
		return err
	}
	return r.Settle(entity.KindSubject, subjectKey(identity))
}

// ClaimLinkedSubjects claims the subjects that an account is linked to. A subject that was linked to another account earlier is unlinked.
func ClaimLinkedSubjects(r service.Request, userID string) error {
	linked, err := service.SendAsPlatform[*userv1.LinkedIdentities](r, entity.KindUser, userID, &userv1.DescribeIdentities{})
	if err != nil {
		return err
	}
	for _, identity := range linked.GetIdentities() {
		err := claim(r, identity, userID)
		if entity.HasCode(err, entity.Forbidden) {
			r.Log().Warn("unlinked an account from an identity that was linked to another account before", "user", userID,
				"issuer", identity.GetIssuer(), "subject", identity.GetSubject())
			_, err = service.Send[proto.Message](r, service.PlatformCommand(r, entity.KindUser, userID, &userv1.UnlinkIdentities{Identity: identity}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

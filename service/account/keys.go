package account

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// withdrawTime bounds the command that ends a credential after its secret was not delivered.
const withdrawTime = 10 * time.Second

// IssueSecret sends a command that creates a credential with a secret that is shown once, and waits until the credential is valid. If that
// fails, or if the client has gone, the secret is not delivered, and the credential may exist: IssueSecret sends the command withdraw. It
// ends the credential, so that a retry leaves no valid credential behind without a holder. Errors: the errors of issue, unavailable.
func IssueSecret[Reply proto.Message](r service.Request, issue, withdraw entity.Command) (Reply, error) {
	reply, err := service.Send[Reply](r, issue)
	if err == nil {
		err = r.Settle(issue.Kind, issue.Identity)
	} else if entity.IsRefusal(err) {
		return reply, err
	}
	if err == nil {
		return reply, nil
	}
	lasting, cancel := r.Outlast(withdrawTime)
	defer cancel()
	withdraw.ID = r.NewID("cmd_")
	if _, failure := lasting.Ask(withdraw); failure != nil && !entity.HasCode(failure, entity.NotFound) {
		r.Log().Warn("a credential whose secret was not shown may exist", "kind", withdraw.Kind, "identity", withdraw.Identity, "error", failure)
	}
	return reply, err
}

// NewKey describes a new API key. ExpiresAt is in milliseconds since the Unix epoch; nil: never.
type NewKey struct {
	Name      string
	ExpiresAt *int64
	// Limits is nil for a key that can do everything that the caller can.
	Limits *NewLimits
}

// NewLimits are the limits of a new API key. Workspaces has the slugs of the workspaces that the key reaches; nil: all workspaces of the
// caller, also workspaces that the caller joins later.
type NewLimits struct {
	Capabilities, Workspaces []string
	ReadOnly                 bool
}

// Issued is an API key that was issued.
type Issued struct {
	*userv1.ApiKey
	// Text is the key itself, which is not stored.
	Text string
	// Workspaces has the workspaces that the limits name.
	Workspaces []*workspacev1.Description
}

// IssueOwnKey issues an API key for the caller. The key is valid when IssueOwnKey returns. Errors: invalid_request, limit_reached.
func IssueOwnKey(r service.Request, in NewKey) (Issued, error) {
	limits, own, err := in.Limits.resolve(r)
	switch {
	case err != nil:
		return Issued{}, err
	case in.Name == "":
		return Issued{}, entity.Errorf(entity.InvalidRequest, "name is required")
	case in.ExpiresAt != nil && (*in.ExpiresAt < 1 || *in.ExpiresAt > entity.MaxTime):
		return Issued{}, entity.Errorf(entity.InvalidRequest, "expiresAt must be an integer from 1 to %d", int64(entity.MaxTime))
	}
	issued := &userv1.IssueApiKey{Name: in.Name, Limits: limits}
	if in.ExpiresAt != nil {
		issued.ExpiresAt = *in.ExpiresAt
	}
	text, key, err := IssueKey(r, entity.Command{Identity: r.Sender().Principal.GetUserId()}, issued)
	if err != nil {
		return Issued{}, err
	}
	return Issued{key, text, own}, nil
}

// resolve returns the limits with the ids of their workspaces, and describes the workspaces of the caller if the limits name some. Errors:
// invalid_request.
func (in *NewLimits) resolve(r service.Request) (limits *userv1.KeyLimits, own []*workspacev1.Description, err error) {
	switch {
	case in == nil:
		return nil, nil, nil
	case len(in.Capabilities) == 0:
		return nil, nil, entity.Errorf(entity.InvalidRequest, "capabilities is required: name at least one")
	case in.Workspaces != nil && len(in.Workspaces) == 0:
		return nil, nil, entity.Errorf(entity.InvalidRequest, "workspaces must not be empty; leave it out for all of your workspaces")
	}
	limits = &userv1.KeyLimits{Capabilities: slices.Sorted(slices.Values(in.Capabilities)), ReadOnly: in.ReadOnly}
	if in.Workspaces == nil {
		return limits, nil, nil
	}
	if own, err = Workspaces(r); err != nil {
		return nil, nil, err
	}
	limits.WorkspaceIds, err = idsOf(own, in.Workspaces)
	return limits, own, err
}

// idsOf returns the ids of the workspaces with the slugs. Errors: invalid_request for a slug of none of them.
func idsOf(workspaces []*workspacev1.Description, slugs []string) ([]string, error) {
	ids := map[string]string{}
	for _, d := range workspaces {
		ids[d.GetWorkspace().GetSlug()] = d.GetWorkspace().GetId()
	}
	found := make([]string, len(slugs))
	for i, slug := range slugs {
		if found[i] = ids[slug]; found[i] == "" {
			return nil, user.ErrKeyWorkspaces
		}
	}
	return found, nil
}

// IssueKey issues an API key for the user that the command names, and waits until it is valid (IssueSecret). It sets the id and the secret
// of issued, and returns the key's text, which is not stored. Errors: limit_reached, invalid_request.
func IssueKey(r service.Request, command entity.Command, issued *userv1.IssueApiKey) (string, *userv1.ApiKey, error) {
	issued.KeyId = r.NewID(user.KeyPrefix)
	text, hash := keys.New(user.StartOfKey(issued.GetLimits() != nil), issued.GetKeyId())
	issued.SecretSha256 = hash
	command.Kind, command.ID, command.Message = entity.KindUser, r.NewID("cmd_"), issued
	withdraw := command
	withdraw.Message = &userv1.RevokeApiKey{KeyId: issued.GetKeyId()}
	key, err := IssueSecret[*userv1.ApiKey](r, command, withdraw)
	return text, key, err
}

// LastUses returns the times at which keys were used last, in milliseconds since the Unix epoch; 0: never. Only the entity of a credential
// knows them. With an error the times that could not be learned are 0.
func LastUses(r service.Request, all []*userv1.ApiKey) ([]int64, error) {
	uses := make([]int64, len(all))
	err := service.ForEach(len(all), func(i int) error {
		found, err := service.SendAsPlatform[*credentialv1.Credential](r, entity.KindCredential, all[i].GetId(), &credentialv1.DescribeCredential{})
		if entity.IsHidden(err) { // the credential is not registered yet
			return nil
		}
		uses[i] = found.GetLastUsedAt()
		return err
	})
	return uses, err
}

// DescribeKeyWorkspaces describes the workspaces that the limits of keys name and that the caller sees. It asks each workspace once. With
// an error it returns the workspaces that were reached.
func DescribeKeyWorkspaces(r service.Request, all []*userv1.ApiKey) ([]*workspacev1.Description, error) {
	var ids []string
	for _, key := range all {
		ids = append(ids, key.GetLimits().GetWorkspaceIds()...)
	}
	slices.Sort(ids)
	return DescribeWorkspaces(r, slices.Compact(ids))
}

// RevokeKey revokes a key of the caller. When it returns, this member refuses the key and has ended its streams; other members
// do so within a second. Errors: not_found.
func RevokeKey(r service.Request, keyID string) (*userv1.ApiKey, error) {
	if len(keyID) > len(user.KeyPrefix)+entity.ULIDLength {
		return nil, errNotFound
	}
	key, err := service.Send[*userv1.ApiKey](r, service.CallerCommand(r, &userv1.RevokeApiKey{KeyId: keyID}))
	if err != nil {
		return nil, err
	}
	if err := service.SettleCaller(r); err != nil {
		return nil, err
	}
	r.EndCredential(keyID)
	return key, nil
}

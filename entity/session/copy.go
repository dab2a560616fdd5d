package session

import sessionv1 "github.com/atelier-run/atelier/messages/session/v1"

// shallowCopy is entity.ShallowCopy without reflection, which took a tenth of the time of a message.
func shallowCopy(s *sessionv1.Session) *sessionv1.Session {
	return &sessionv1.Session{
		Id: s.Id, WorkspaceId: s.WorkspaceId, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, CreatedBy: s.CreatedBy,
		CreatorUserId: s.CreatorUserId, ParentId: s.ParentId, AgentId: s.AgentId, Mode: s.Mode, Cwd: s.Cwd, Title: s.Title,
		TitleOrigin: s.TitleOrigin, TitleStatus: s.TitleStatus, Tier: s.Tier, Audience: s.Audience,
		GlobalArchivedAt: s.GlobalArchivedAt, PersonalArchivedAt: s.PersonalArchivedAt, Read: s.Read,
		LastEventSeq: s.LastEventSeq, TurnStatus: s.TurnStatus, Turn: s.Turn, Pending: s.Pending, Ask: s.Ask,
		Machine: s.Machine, Usage: s.Usage, Allowed: s.Allowed, Agent: s.Agent, Sealed: s.Sealed, Erased: s.Erased,
		WakeAt: s.WakeAt, Children: s.Children, Started: s.Started, PromptSeq: s.PromptSeq, PromptDigest: s.PromptDigest,
		LastTier: s.LastTier, LostTurns: s.LostTurns, WakeBounds: s.WakeBounds, Participant: s.Participant,
	}
}

// shallowCopyOfInput is entity.ShallowCopy without reflection, too.
func shallowCopyOfInput(in *sessionv1.Input) *sessionv1.Input {
	return &sessionv1.Input{
		Kind: in.Kind, Sender: in.Sender, Text: in.Text, Tier: in.Tier, Behavior: in.Behavior, Images: in.Images,
		Attachments: in.Attachments, SourceSessionId: in.SourceSessionId, ClientRequestId: in.ClientRequestId,
		OptionId: in.OptionId, Digest: in.Digest, DefaultOwner: in.DefaultOwner,
		Bounds: in.Bounds,
	}
}

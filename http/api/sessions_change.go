package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type interruptedView struct {
	OK          bool `json:"ok"`
	Interrupted bool `json:"interrupted"`
}

// interrupt ends the running turn or the sleep of the session in the path, and drops the waiting inputs.
func (s sessions) interrupt(c *server.Call, _ server.None) (interruptedView, error) {
	done, err := changeSession[*sessionv1.Interrupted](c, &sessionv1.Interrupt{})
	return interruptedView{true, done.GetInterrupted()}, err
}

// changeSession sends a command, with an id, to the session in the path.
func changeSession[Reply proto.Message](c *server.Call, m sessionv1.Command) (reply Reply, err error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return reply, err
	}
	command := sessionCommand(c, id, m)
	command.ID = c.NewID("cmd_")
	return server.Ask[Reply](c, command)
}

// changeAndView sends a command to the session in the path and returns the session after it.
func changeAndView(c *server.Call, m sessionv1.Command) (sessionChanged, error) {
	changed, err := changeSession[*sessionv1.Description](c, m)
	if err != nil {
		return sessionChanged{}, err
	}
	return viewChanged(c, changed)
}

type cwdRequest struct {
	Cwd *string `json:"cwd"`
}

func checkMove(in *cwdRequest) error {
	if in.Cwd == nil {
		return server.Invalid("cwd is required")
	}
	return nil
}

// moveCwd moves the working directory of the session in the path.
func (s sessions) moveCwd(c *server.Call, in cwdRequest) (sessionChanged, error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return sessionChanged{}, err
	}
	moved, err := s.request(c).MoveCwd(c.Context, id, *in.Cwd)
	if err != nil {
		return sessionChanged{}, err
	}
	return viewChanged(c, moved)
}

type sessionTitleRequest struct {
	Title *string `json:"title"`
}

// checkSessionTitle checks that there is a title; the rules check the title itself.
func checkSessionTitle(in *sessionTitleRequest) error {
	if in.Title == nil {
		return server.Invalid("title is required")
	}
	return nil
}

func (s sessions) rename(c *server.Call, in sessionTitleRequest) (sessionChanged, error) {
	return changeAndView(c, &sessionv1.RenameSession{Title: *in.Title})
}

type archiveRequest struct {
	Scope    string `json:"scope"`
	Archived *bool  `json:"archived"`
}

func checkArchive(in *archiveRequest) error {
	switch _, known := ParseName(archiveScopeNames, in.Scope); {
	case !known:
		return server.Invalid("scope must be one of personal, global")
	case in.Archived == nil:
		return server.Invalid("archived is required")
	}
	return nil
}

// archive sets one of the two archives. The rules refuse the global one to viewers.
func (s sessions) archive(c *server.Call, in archiveRequest) (sessionChanged, error) {
	scope, _ := ParseName(archiveScopeNames, in.Scope)
	return changeAndView(c, &sessionv1.ArchiveSession{Scope: scope, Archived: *in.Archived})
}

type audienceRequest struct {
	Add    []string `json:"add"`
	Remove []string `json:"remove"`
	Kind   *string  `json:"kind"`
}

func checkAudience(in *audienceRequest) error {
	if err := checkMembers("add", in.Add, session.MaxAudience); err != nil {
		return err
	}
	if err := checkMembers("remove", in.Remove, session.MaxAudience); err != nil {
		return err
	}
	if in.Kind != nil && *in.Kind != "workspace" && *in.Kind != "specific" {
		return server.Invalid("kind must be one of workspace, specific")
	}
	return nil
}

// changeAudience changes the audience of the session in the path. Members who are added must be members of the workspace; former
// members can be removed, too.
func (s sessions) changeAudience(c *server.Call, in audienceRequest) (sessionChanged, error) {
	command := &sessionv1.ChangeAudience{Add: in.Add, Remove: in.Remove}
	if in.Kind != nil {
		command.Specific = proto.Bool(*in.Kind == "specific")
	}
	if err := s.request(c).CheckMembers(c.Context, "add", in.Add); err != nil {
		return sessionChanged{}, withholdAudience(c, err)
	}
	return changeAndView(c, command)
}

// decodeAudience decodes a change of the audience.
func decodeAudience(c *server.Call) (audienceRequest, error) {
	in, err := server.Checked(checkAudience)(c)
	if err != nil {
		err = withholdAudience(c, err)
	}
	return in, err
}

// withholdAudience returns err, which describes an invalid input, only to callers who see the session and have the permission to
// change its audience. Errors: not_found, forbidden, the errors of withhold.
func withholdAudience(c *server.Call, err error) error {
	_, refused := changeSession[*sessionv1.Description](c, &sessionv1.ChangeAudience{}) // without a change
	if refused != nil {
		return refused
	}
	return err
}

type readRequest struct {
	Seq *int64 `json:"seq"`
}

func checkRead(in *readRequest) error {
	if in.Seq == nil || *in.Seq < 0 || *in.Seq > entity.MaxTime {
		return server.Invalid("seq must be an integer from 0 to %d", uint64(entity.MaxTime))
	}
	return nil
}

func (s sessions) markRead(c *server.Call, in readRequest) (sessionChanged, error) {
	return changeAndView(c, &sessionv1.MarkRead{Seq: uint64(*in.Seq)})
}

// remove deletes the session in the path. It answers in the same way whether the session existed for the caller or not. Errors:
// forbidden if the caller sees the session but may not delete it.
func (s sessions) remove(c *server.Call) error {
	if _, err := server.Nothing(c); err != nil {
		return c.Withhold(err)
	}
	id, err := c.Variable("sessionId"), error(nil)
	if session.IsID(id) {
		command := sessionCommand(c, id, &sessionv1.DeleteSession{})
		command.ID = c.NewID("cmd_")
		_, err = server.Ask[proto.Message](c, command)
	} else {
		err = c.Authorize()
	}
	if entity.HasCode(err, entity.Forbidden) && isUnseen(c, id) {
		err = nil
	}
	if err != nil {
		return err
	}
	c.Response.WriteHeader(http.StatusNoContent)
	return nil
}

// isUnseen reports whether the caller may read sessions, but does not see one. It activates no entity for a text that is no id.
func isUnseen(c *server.Call, sessionID string) bool {
	if !session.IsID(sessionID) {
		_, err := server.Ask[*workspacev1.Authorized](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Message: &workspacev1.Authorize{Any: []string{entity.Sessions}},
		})
		return err == nil
	}
	_, err := describeSession(c, sessionID)
	return entity.HasCode(err, entity.NotFound)
}

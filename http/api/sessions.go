package api

import (
	"context"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// Timelines opens live streams of the timelines of entities.
type Timelines interface {
	// FollowTimeline registers for a timeline and returns the function that runs the stream. Its contract is the contract
	// of Streams.Subscribe.
	FollowTimeline(ctx context.Context, s entity.TimelineSubscription) (follow func(ctx context.Context) error, err error)
}

// Folders looks up and creates the files and folders of drives.
type Folders interface {
	sessionservice.Folders
	// MakeFolders creates the folders of a path that do not exist, as the principal. Errors: path_in_use if the path has something else
	// than folders or is locked, limit_reached if no space is left, the errors of access and of the drive.
	MakeFolders(ctx context.Context, workspaceID, path string, access entity.DriveAccess) error
}

// SessionOptions configures the operations of sessions. Timelines, Folders and Images are required.
type SessionOptions struct {
	Timelines Timelines
	Folders   Folders
	Images    sessionservice.Images
	// DeliveryTime is the time in which a run may take an input before the response says that it is queued; 0: one second.
	DeliveryTime time.Duration
	// WaitTime limits the time that a request waits for the terminal of its input; 0: 30 seconds.
	WaitTime time.Duration
}

func (o SessionOptions) withDefaults() SessionOptions {
	if o.DeliveryTime == 0 {
		o.DeliveryTime = time.Second
	}
	if o.WaitTime == 0 {
		o.WaitTime = 30 * time.Second
	}
	return o
}

// sessions serves the agent sessions of a workspace.
//
// A request decodes and validates its input (sessions_input.go), computes the digest of the request, and calls an operation of package
// service/session. The package comment has the steps of an input. The answer to an input says whether a run has taken it within
// SessionOptions.DeliveryTime; a request that waits (sessions_wait.go) waits for the terminal instead, for SessionOptions.WaitTime.
type sessions struct {
	SessionOptions
	files   Drive
	service *sessionservice.Service
}

// request returns the request as the operations of package service/session take it.
func (s sessions) request(c *server.Call) sessionservice.Request {
	return s.service.For(c.Sender(), c.Workspace.ID)
}

const (
	sessionsPath = server.WorkspacePath + "/agent/sessions"
	sessionPath  = sessionsPath + "/{sessionId}"
	childrenPath = sessionsPath + "/{parentSessionId}/sessions"
	defaultPath  = server.WorkspacePath + "/agent/defaults/{owner}"
)

func (s sessions) routes() []server.Route {
	table := []server.Route{
		{Method: http.MethodGet, Path: sessionsPath, Summary: "List sessions", Handler: server.Answer(http.StatusOK, s.decodeList, s.list)},
		{Method: http.MethodPost, Path: sessionsPath, Summary: "Start a session", Handler: server.AnswerCreated(s.decodeStart, s.create)},
		{Method: http.MethodPost, Path: sessionsPath + "/wait", Summary: "Start a session and wait", Handler: s.waitFor(s.startWaiting), Timing: server.Streaming},
		{Method: http.MethodPost, Path: sessionsPath + "/uploads", Scope: server.ScopeWriteFiles, Summary: "Offer an upload of a file for a session",
			Handler: server.Answer(http.StatusCreated, server.Checked(checkUpload), s.offerUpload)},
		{Method: http.MethodGet, Path: sessionPath, Summary: "Describe a session", Handler: server.Answer(http.StatusOK, ofSession(server.Nothing), s.describe)},
		{Method: http.MethodPatch, Path: sessionPath, Summary: "Rename a session", Handler: server.Answer(http.StatusOK, ofSession(server.Checked(checkSessionTitle)), s.rename)},
		{Method: http.MethodDelete, Path: sessionPath, Summary: "Delete a session and its descendants", Handler: s.remove, Idempotent: true},
		{Method: http.MethodGet, Path: sessionPath + "/history", Summary: "List the rows of a session", Handler: server.Answer(http.StatusOK, ofSession(decodeTimeline), s.history)},
		{Method: http.MethodGet, Path: sessionPath + "/events", Summary: "Follow the rows of a session", Handler: s.events, Timing: server.Streaming},
		{Method: http.MethodPost, Path: sessionPath + "/messages", Summary: "Send a message", Handler: server.Answer(http.StatusOK, ofSession(s.decodeMessage), s.sendAndDeliver)},
		{Method: http.MethodPost, Path: sessionPath + "/messages/wait", Summary: "Send a message and wait", Handler: s.waitFor(s.messageWaiting), Timing: server.Streaming},
		{Method: http.MethodPost, Path: sessionPath + "/answer", Summary: "Answer a session's question", Handler: server.Answer(http.StatusOK, ofSession(s.decodeAnswer), s.sendAndDeliver)},
		{Method: http.MethodPost, Path: sessionPath + "/answer/wait", Summary: "Answer a session's question and wait", Handler: s.waitFor(s.answerWaiting), Timing: server.Streaming},
		{Method: http.MethodPost, Path: sessionPath + "/notes", Summary: "Leave a note for a session", Handler: server.Answer(http.StatusOK, ofSession(s.decodeNote), s.sendAndDeliver)},
		{Method: http.MethodPost, Path: sessionPath + "/interrupt", Summary: "Interrupt a session", Handler: server.Answer(http.StatusOK, ofSession(server.Nothing), s.interrupt)},
		{Method: http.MethodPost, Path: sessionPath + "/cwd", Summary: "Move a session's working directory", Handler: server.Answer(http.StatusOK, ofSession(server.Checked(checkMove)), s.moveCwd)},
		{Method: http.MethodPut, Path: sessionPath + "/archive", Summary: "Archive or restore a session", Handler: server.Answer(http.StatusOK, ofSession(server.Checked(checkArchive)), s.archive), Personal: true},
		{Method: http.MethodPatch, Path: sessionPath + "/audience", Summary: "Change the audience of a session", Handler: server.Answer(http.StatusOK, decodeAudience, s.changeAudience)},
		{Method: http.MethodPut, Path: sessionPath + "/read", Summary: "Mark a session as read", Handler: server.Answer(http.StatusOK, ofSession(server.Checked(checkRead)), s.markRead), Personal: true},
		{Method: http.MethodGet, Path: childrenPath, Summary: "List the children of a session", Handler: server.Answer(http.StatusOK, ofSession(s.decodeList), s.listChildren)},
		{Method: http.MethodPost, Path: childrenPath, Summary: "Start a child session", Handler: server.AnswerCreated(ofSession(s.decodeStart), s.createChild)},
		{Method: http.MethodPost, Path: childrenPath + "/wait", Summary: "Start a child session and wait", Handler: s.waitFor(s.childWaiting), Timing: server.Streaming},
		{Method: http.MethodGet, Path: defaultPath, Summary: "Describe a default session", Handler: server.Answer(http.StatusOK, ofOwner(server.Nothing), s.readDefault)},
		{Method: http.MethodPut, Path: defaultPath, Summary: "Choose a default session", Handler: server.Answer(http.StatusOK, ofOwner(server.Checked(checkDefault)), s.chooseDefault)},
		{Method: http.MethodGet, Path: defaultPath + "/history", Summary: "List the rows of a default session", Handler: server.Answer(http.StatusOK, ofOwner(decodeRawTimeline), s.defaultHistory)},
		{Method: http.MethodGet, Path: defaultPath + "/events", Summary: "Follow the rows of a default session", Handler: s.defaultEvents, Timing: server.Streaming},
		{Method: http.MethodPost, Path: defaultPath + "/messages", Summary: "Send a message to a default session", Handler: server.Answer(http.StatusOK, ofOwner(s.decodeMessage), s.sendToDefault)},
		{Method: http.MethodPost, Path: defaultPath + "/messages/wait", Summary: "Send a message to a default session and wait", Handler: s.waitFor(s.defaultWaiting), Timing: server.Streaming},
		{Method: http.MethodPut, Path: uploadPath, Scope: server.ScopePublic, Summary: "Upload a file for a session", Handler: s.upload, Timing: server.Transfer},
	}
	for i := range table {
		if table[i].Scope == "" {
			table[i].Scope = server.ScopeSessions
		}
	}
	return table
}

// sessionCommand returns a command for a session of the workspace in the path.
func sessionCommand(c *server.Call, sessionID string, m sessionv1.Command) entity.Command {
	return entity.Command{Kind: entity.KindSession, Identity: session.Identity(c.Workspace.ID, sessionID), Message: m}
}

// pathSession returns the id of the session that a variable of the path names. It activates no entity for a text that is no id.
// Errors: not_found, after the refusals of Authorize.
func pathSession(c *server.Call, variable string) (string, error) {
	id := c.Variable(variable)
	if !session.IsID(id) {
		return "", c.Withhold(server.ErrNotFound)
	}
	return id, nil
}

// withhold returns err, which describes an invalid input, only to callers who have the access that the operation requires and who see
// the session in its path, if it names one. Errors: not_found, the errors of Authorize.
func withhold(c *server.Call, err error) error {
	if denied := c.Authorize(); denied != nil {
		return denied
	}
	for _, variable := range []string{"sessionId", "parentSessionId"} {
		id := c.Variable(variable)
		if id == "" {
			continue
		}
		if !session.IsID(id) {
			return server.ErrNotFound
		}
		if _, unseen := describeSession(c, id); unseen != nil {
			return unseen
		}
	}
	return err
}

// ofSession returns a decoder that returns errors only to callers who see the session in the path; see withhold.
func ofSession[In any](decode func(*server.Call) (In, error)) func(*server.Call) (In, error) {
	return func(c *server.Call) (In, error) {
		in, err := decode(c)
		if err != nil {
			err = withhold(c, err)
		}
		return in, err
	}
}

// describeSession describes a session as the caller. Errors: not_found if the caller does not see it.
func describeSession(c *server.Call, sessionID string) (*sessionv1.Description, error) {
	return server.Ask[*sessionv1.Description](c, sessionCommand(c, sessionID, &sessionv1.DescribeSession{}))
}

// describe returns the session in the path.
func (s sessions) describe(c *server.Call, _ server.None) (sessionDetail, error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return sessionDetail{}, err
	}
	found, err := describeSession(c, id)
	if err != nil {
		return sessionDetail{}, err
	}
	return viewDetail(c, found)
}

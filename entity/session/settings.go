package session

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

var (
	errTitle      = entity.Errorf(entity.InvalidRequest, "title must have 1 to %d characters and no control characters", MaxTitle)
	errCwdMoved   = entity.Errorf(entity.CwdConflict, "the working directory was moved by another request; read the session again")
	errArchive    = entity.Errorf(entity.InvalidRequest, "scope must be personal or global")
	errNoReader   = entity.Errorf(entity.Forbidden, "the credential belongs to no person")
	errReadSeq    = entity.Errorf(entity.InvalidRequest, "seq must not be after the last event of the session")
	errNoAudience = entity.Errorf(entity.InvalidRequest, "members can be added and removed only if kind is specific")
	errChildMode  = entity.Errorf(entity.Forbidden, "a session in mode confirm cannot have a child in mode auto")
	errChildID    = entity.Errorf(entity.InvalidRequest, "childId is not the id of a session")
	errNotSealed  = entity.Errorf(entity.InvalidRequest, "the session is not being deleted")
)

func checkTitle(title string) error {
	n := utf8.RuneCountInString(title)
	if n == 0 || n > MaxTitle || strings.TrimSpace(title) == "" || !utf8.ValidString(title) || strings.ContainsFunc(title, entity.IsControl) {
		return errTitle
	}
	return nil
}

// checkCwd validates a working directory, a path of the drive; the root is the empty path.
func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	if err := entity.CheckPath(cwd); err != nil { // not returned as it is: a nil *entity.Error is not a nil error
		return err
	}
	return nil
}

// moveCwd moves the working directory. Errors: invalid_request, cwd_conflict if it is not the directory that the sender has seen.
func moveCwd(call entity.Call, s *sessionv1.Session, c *sessionv1.MoveCwd) ([]sessionv1.Event, error) {
	switch err := checkCwd(c.GetCwd()); {
	case err != nil:
		return nil, err
	case s.GetCwd() == c.GetCwd():
		return nil, nil
	case s.GetCwd() != c.GetExpected():
		return nil, errCwdMoved
	}
	d := draft{call: call, state: s}
	d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Setting: &sessionv1.Setting{Cwd: &c.Cwd}}, Reader: readerOf(call.Principal)})
	return d.events, nil
}

// rename sets a title that no agent replaces.
func rename(call entity.Call, s *sessionv1.Session, c *sessionv1.RenameSession) ([]sessionv1.Event, error) {
	if err := checkTitle(c.GetTitle()); err != nil {
		return nil, err
	}
	if s.GetTitle() == c.GetTitle() && s.GetTitleOrigin() == sessionv1.TitleOrigin_TITLE_ORIGIN_MANUAL {
		return nil, nil
	}
	d := draft{call: call, state: s}
	d.row(&sessionv1.RowAdded{Row: &sessionv1.Row{Setting: &sessionv1.Setting{Title: &c.Title}}, Reader: readerOf(call.Principal)})
	return d.events, nil
}

// archive archives or restores the session, for everybody or for the sender alone.
func archive(call entity.Call, s *sessionv1.Session, c *sessionv1.ArchiveSession) ([]sessionv1.Event, error) {
	e := &sessionv1.SessionArchived{Scope: c.GetScope()}
	var archivedAt int64
	switch c.GetScope() {
	case sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL:
		archivedAt = s.GetGlobalArchivedAt()
	case sessionv1.ArchiveScope_ARCHIVE_SCOPE_PERSONAL:
		if e.UserId = call.Principal.GetUserId(); e.UserId == "" {
			return nil, errNoReader
		}
		archivedAt = s.GetPersonalArchivedAt()[e.GetUserId()]
	default:
		return nil, errArchive
	}
	if c.GetArchived() == (archivedAt != 0) {
		return nil, nil
	}
	if c.GetArchived() {
		e.ArchivedAt = call.At()
	}
	return []sessionv1.Event{e}, nil
}

// changeAudience adds and removes members, and changes whether the audience is specific. Errors: forbidden unless the sender
// administers the session, invalid_request.
func changeAudience(call entity.Call, s *sessionv1.Session, c *sessionv1.ChangeAudience) ([]sessionv1.Event, error) {
	if !administers(call, s) {
		return nil, errForbidden
	}
	old := s.GetAudience()
	next := &sessionv1.Audience{Specific: old.GetSpecific(), UserIds: slices.Clone(old.GetUserIds())}
	if c.Specific != nil {
		next.Specific = c.GetSpecific()
	}
	if !next.GetSpecific() {
		if len(c.GetAdd())+len(c.GetRemove()) > 0 {
			return nil, errNoAudience
		}
		next.UserIds = nil
	}
	for _, user := range c.GetAdd() {
		if !slices.Contains(next.GetUserIds(), user) {
			next.UserIds = append(next.GetUserIds(), user)
		}
	}
	next.UserIds = slices.DeleteFunc(next.GetUserIds(), func(user string) bool { return slices.Contains(c.GetRemove(), user) })
	switch {
	case len(next.GetUserIds()) > MaxAudience:
		return nil, errAudienceSize
	case next.GetSpecific() == old.GetSpecific() && slices.Equal(next.GetUserIds(), old.GetUserIds()):
		return nil, nil
	}
	return []sessionv1.Event{&sessionv1.AudienceChanged{Audience: next}}, nil
}

// markRead records the last seq that the sender has read.
func markRead(call entity.Call, s *sessionv1.Session, c *sessionv1.MarkRead) ([]sessionv1.Event, error) {
	user := call.Principal.GetUserId()
	switch {
	case user == "":
		return nil, errNoReader
	case c.GetSeq() > s.GetLastEventSeq():
		return nil, errReadSeq
	case s.GetRead()[user] == c.GetSeq():
		return nil, nil
	}
	return []sessionv1.Event{&sessionv1.ReadMarked{UserId: user, Seq: c.GetSeq()}}, nil
}

// admitChild records a child that is about to be created. The row of the list ChildList is written again if it exists. A child of a
// session that confirms confirms too, so that no session starts another session to get a capability that a person would have to
// grant. Errors: invalid_request, forbidden.
func admitChild(s *sessionv1.Session, c *sessionv1.AdmitChild) ([]sessionv1.Event, error) {
	switch {
	case !IsID(c.GetChildId()) || c.GetChildId() == s.GetId():
		return nil, errChildID
	case s.GetMode() == sessionv1.Mode_MODE_CONFIRM && c.GetMode() != sessionv1.Mode_MODE_CONFIRM:
		return nil, errChildMode
	}
	return []sessionv1.Event{&sessionv1.ChildAdmitted{ChildId: c.GetChildId()}}, nil
}

// seal begins the deletion. It has no effect if the session does not exist for the sender or is being deleted. The platform seals
// also a session that does not exist, so that a child that its parent has admitted cannot be created after the parent's deletion.
// Errors: forbidden unless the sender administers the session.
func seal(call entity.Call, s *sessionv1.Session) ([]sessionv1.Event, error) {
	if s.GetSealed() {
		return nil, nil
	}
	if !entity.IsPlatform(call.Principal) {
		if Visible(call, s) != nil {
			return nil, nil
		}
		if !administers(call, s) {
			return nil, errForbidden
		}
	}
	return []sessionv1.Event{&sessionv1.SessionSealed{At: call.At(), SessionId: s.GetId(), WorkspaceId: s.GetWorkspaceId()}}, nil
}

// checkErasing returns an error unless the session is being deleted.
func checkErasing(s *sessionv1.Session) error {
	if !s.GetSealed() {
		return errNotSealed
	}
	return nil
}

// reportErased completes a deletion.
func reportErased(call entity.Call, s *sessionv1.Session) []sessionv1.Event {
	if !s.GetSealed() || s.GetErased() {
		return nil
	}
	return []sessionv1.Event{&sessionv1.SessionErased{At: call.At()}}
}

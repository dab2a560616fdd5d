package session

import (
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// The names of the lists of a workspace's sessions. The keys of all but SessionList begin with the id of a session; see Key.
const (
	// SessionList has, for each range of RangePrefix, a reference to each session in it, newest first.
	SessionList = "sessions"
	// SummaryList has one sessionv1.SummaryRow for each session.
	SummaryList = "session.summary"
	// ChildList has a sessionv1.ChildRow for each child that a session has admitted. Key: the parent, the child.
	ChildList = "session.child"
	// TerminalList has a sessionv1.TerminalRow for each terminal. Key: the session, the seq of the input as entity.AscendingKey.
	TerminalList = "session.terminal"
	// RequestList has a sessionv1.RequestRow for each input with a request id. Key: the session, the request id.
	RequestList = "session.request"
	// ImageList has a sessionv1.StoredImage for each image that an input names. Key: ImageKey.
	ImageList = "session.image"
)

// ErasedLists are the lists with rows that the executor of DeletionTask removes; the rules remove the rows of the other lists.
var ErasedLists = []string{ChildList, TerminalList, RequestList, ImageList}

// Lists returns the lists, which are read through the workspace.
func Lists() map[string]entity.List {
	need := entity.Reads(entity.Sessions)
	return map[string]entity.List{
		SessionList:  {Need: need, Of: SummaryList, Key: summaryKey, Visible: isListed},
		SummaryList:  {Need: need, Visible: isListed},
		ChildList:    {Need: need},
		TerminalList: {Need: need},
		RequestList:  {Need: need},
		ImageList:    {Need: need, Most: 1},
	}
}

// Key returns the key of a row of a session in a list. The rows of a session have the prefix Key(sessionID, "").
func Key(sessionID, rest string) string { return sessionID + "\x00" + rest }

// ImageKey returns the key in ImageList of an image of a session with a SHA-256. Rows that have the content of their image, which were
// written before images were files, have the SHA-256 itself in their keys, and not its digits; MoveImage replaces them.
func ImageKey(sessionID string, sha256 []byte) string {
	return Key(sessionID, hex.EncodeToString(sha256))
}

// ownerPrefix begins the keys of the rows in RequestList that belong to the owners of default sessions.
const ownerPrefix = "default\x00"

// OwnerKey returns the key in RequestList of the input that a sender has sent, with a request id, to the default session of an
// owner. It finds the input also if another session is the default by now.
func OwnerKey(owner string, sender *sessionv1.Sender, requestID string) string {
	return ownerPrefix + strings.Join([]string{owner, sender.GetKind().String(), sender.GetId(), requestID}, "\x00")
}

// The scopes of RangePrefix besides the id of a parent.
const (
	ScopeAll      = "all"
	ScopeTopLevel = "top"
)

// RangePrefix returns the common beginning of the keys in SessionList of the sessions of a scope, which is ScopeAll, ScopeTopLevel
// or the id of a parent, in a bucket; "": in any. archived selects the sessions that somebody has archived, otherwise the sessions
// that are not archived for everybody; isListed selects among them for a reader.
func RangePrefix(scope, bucket string, archived bool) string {
	state := "live"
	if archived {
		state = "archived"
	}
	if bucket == "" {
		bucket = "any"
	}
	return scope + "\x00" + bucket + "\x00" + state + "\x00"
}

// references returns the keys of a session's rows in SessionList, sorted.
func references(s *sessionv1.Session) []string {
	if !s.GetStarted() || s.GetSealed() {
		return nil
	}
	scopes := []string{ScopeAll, ScopeTopLevel}
	if s.GetParentId() != "" {
		scopes[1] = s.GetParentId()
	}
	var keys []string
	position := entity.DescendingKey(uint64(s.GetCreatedAt())) + s.GetId()
	for _, scope := range scopes {
		for _, bucket := range []string{"", BucketOf(s)} {
			if s.GetGlobalArchivedAt() == 0 {
				keys = append(keys, RangePrefix(scope, bucket, false)+position)
			}
			if s.GetGlobalArchivedAt() != 0 || len(s.GetPersonalArchivedAt()) > 0 {
				keys = append(keys, RangePrefix(scope, bucket, true)+position)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// A place is the part of a session that changes and on which its references depend.
type place struct {
	started, sealed, archivedForAll, archivedForSome bool
	bucket                                           string
}

func placeOf(s *sessionv1.Session) place {
	return place{s.GetStarted(), s.GetSealed(), s.GetGlobalArchivedAt() != 0, len(s.GetPersonalArchivedAt()) > 0, BucketOf(s)}
}

func summaryKey(row []byte) (string, error) {
	var ref sessionv1.Reference
	err := proto.Unmarshal(row, &ref)
	return ref.GetKey(), err
}

// isListed reports whether a session is visible to a reader and matches a sessionv1.Filter.
func isListed(call entity.Call, row, filter []byte) (bool, error) {
	var summary sessionv1.SummaryRow
	var f sessionv1.Filter
	if err := proto.Unmarshal(row, &summary); err != nil {
		return false, err
	}
	if err := proto.Unmarshal(filter, &f); err != nil {
		return false, entity.Errorf(entity.InvalidRequest, "the filter is invalid")
	}
	s := summary.GetSession()
	switch {
	case Visible(call, s) != nil,
		f.GetAgentId() != "" && s.GetAgentId() != f.GetAgentId(),
		slices.Contains(f.GetExcept(), s.GetId()),
		!entity.IsPlatform(call.Principal) && IsArchived(s, call.Principal.GetUserId()) != f.GetArchived():
		return false, nil
	}
	return f.GetSearch() == "" || strings.Contains(strings.ToLower(s.GetTitle()), strings.ToLower(f.GetSearch())), nil
}

// summaryOf returns the part of a session that lists show and filter by.
func summaryOf(s *sessionv1.Session) *sessionv1.SummaryRow {
	shown := shallowCopy(s)
	shown.Turn, shown.Pending, shown.Agent, shown.PromptDigest, shown.Participant = nil, nil, nil, nil, nil
	if s.GetAsk() != nil {
		shown.Ask = &sessionv1.PendingAsk{Seq: s.GetAsk().GetSeq()}
	}
	return &sessionv1.SummaryRow{Session: shown}
}

// Rows returns the changes of the lists that follow from a command.
func Rows(call entity.Call, before, after *sessionv1.Session, c sessionv1.Command, events []sessionv1.Event) []entity.Row {
	switch c := c.(type) {
	case *sessionv1.EraseRows:
		return erasedRows(after, c)
	case *sessionv1.MoveImage:
		old := Key(after.GetId(), string(c.GetImage().GetSha256()))
		return []entity.Row{imageRow(after, c.GetImage()), {List: ImageList, Key: old}}
	default: // the rows follow from the events
	}
	if len(events) == 0 {
		return nil
	}
	rows := referenceRows(before, after)
	switch {
	case after.GetStarted() && !after.GetSealed():
		rows = append(rows, entity.Row{List: SummaryList, Key: after.GetId(), Message: summaryOf(after)})
	case before.GetStarted() && !before.GetSealed():
		rows = append(rows, entity.Row{List: SummaryList, Key: after.GetId()})
	}
	for i, e := range events {
		rows = append(rows, eventRows(after, e)...)
		if logged := auditEvent(call, after, e); logged != nil {
			rows = append(rows, audit.NewRow(entity.KindSession+"/"+after.GetId(), call, i, logged))
		}
	}
	return rows
}

// erasedRows removes rows of the session itself, and rows of owners if inputs to their default session were sent to this
// session; other keys are ignored. A key of ImageKey removes the row with the content of the image, too.
func erasedRows(s *sessionv1.Session, c *sessionv1.EraseRows) []entity.Row {
	var rows []entity.Row
	for _, r := range c.GetRows() {
		own := slices.Contains(ErasedLists, r.GetList()) && strings.HasPrefix(r.GetKey(), Key(s.GetId(), ""))
		if own || r.GetList() == RequestList && strings.HasPrefix(r.GetKey(), ownerPrefix) {
			rows = append(rows, entity.Row{List: r.GetList(), Key: r.GetKey()})
		}
		digits := strings.TrimPrefix(r.GetKey(), Key(s.GetId(), ""))
		if sum, err := hex.DecodeString(digits); own && r.GetList() == ImageList && err == nil {
			rows = append(rows, entity.Row{List: ImageList, Key: Key(s.GetId(), string(sum))})
		}
	}
	return rows
}

func referenceRows(before, after *sessionv1.Session) []entity.Row {
	if placeOf(before) == placeOf(after) {
		return nil
	}
	old, current := references(before), references(after)
	var rows []entity.Row
	for _, key := range old {
		if _, remains := slices.BinarySearch(current, key); !remains {
			rows = append(rows, entity.Row{List: SessionList, Key: key})
		}
	}
	for _, key := range current {
		if _, had := slices.BinarySearch(old, key); !had {
			rows = append(rows, entity.Row{List: SessionList, Key: key, Message: &sessionv1.Reference{Key: after.GetId()}})
		}
	}
	return rows
}

// eventRows returns the rows of the lists of a session's own inputs, their images, terminals and children.
func eventRows(s *sessionv1.Session, e sessionv1.Event) []entity.Row {
	switch e := e.(type) {
	case *sessionv1.RowAdded:
		if in := e.GetRow().GetInput(); in != nil {
			return append(imageRows(s, in), requestRows(s, in, e.GetSeq())...)
		}
		if terminal := e.GetRow().GetTerminal(); terminal != nil {
			return []entity.Row{{
				List: TerminalList, Key: Key(s.GetId(), entity.AscendingKey(terminal.GetInputSeq())),
				Message: &sessionv1.TerminalRow{Seq: e.GetSeq(), At: e.GetAt(), Terminal: terminal},
			}}
		}
	case *sessionv1.ChildAdmitted:
		return []entity.Row{{List: ChildList, Key: Key(s.GetId(), e.GetChildId()), Message: &sessionv1.ChildRow{ChildId: e.GetChildId()}}}
	default: // other events change the rows of referenceRows and SummaryList alone
	}
	return nil
}

// imageRows returns the rows of the images of an input. They are written in one batch with the input, so that an image without a row
// belongs to no input.
func imageRows(s *sessionv1.Session, in *sessionv1.Input) []entity.Row {
	var rows []entity.Row
	for _, i := range in.GetImages() {
		rows = append(rows, imageRow(s, i))
	}
	return rows
}

// imageRow returns the row of an image in a file.
func imageRow(s *sessionv1.Session, i *sessionv1.Image) entity.Row {
	return entity.Row{
		List: ImageList, Key: ImageKey(s.GetId(), i.GetSha256()),
		Message: &sessionv1.StoredImage{MediaType: i.GetMediaType(), Sha256: i.GetSha256(), Size: i.GetSize()},
	}
}

// requestRows returns the rows of an input with a request id, or none if it has no request id.
func requestRows(s *sessionv1.Session, in *sessionv1.Input, seq uint64) []entity.Row {
	if in.GetClientRequestId() == "" {
		return nil
	}
	row := &sessionv1.RequestRow{
		InputSeq: seq, Digest: in.GetDigest(), ClientRequestId: in.GetClientRequestId(), SessionId: s.GetId(),
	}
	rows := []entity.Row{{List: RequestList, Key: Key(s.GetId(), in.GetClientRequestId()), Message: row}}
	if in.GetDefaultOwner() != "" {
		row.OwnerKey = OwnerKey(in.GetDefaultOwner(), in.GetSender(), in.GetClientRequestId())
		rows = append(rows, entity.Row{List: RequestList, Key: row.GetOwnerKey(), Message: row})
	}
	return rows
}

// auditEvent returns the audit event for an event, or nil if it is not logged: the deletion by a person, archives for everybody,
// and changes of the audience.
func auditEvent(call entity.Call, s *sessionv1.Session, e sessionv1.Event) *auditv1.Event {
	action := ""
	switch e := e.(type) {
	case *sessionv1.SessionSealed:
		if entity.IsPlatform(call.Principal) {
			return nil
		}
		action = "session.deleted"
	case *sessionv1.SessionArchived:
		switch {
		case e.GetScope() != sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL:
			return nil
		case e.GetArchivedAt() != 0:
			action = "session.archived"
		default:
			action = "session.restored"
		}
	case *sessionv1.AudienceChanged:
		action = "session.audience_changed"
	default:
		return nil
	}
	return audit.NewEvent(call, action, &auditv1.Provenance{SessionId: s.GetId()})
}

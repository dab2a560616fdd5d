package sessionv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a session.
//
//sumtype:decl
type Command interface {
	proto.Message
	sessionCommand()
}

func (*StartSession) sessionCommand()    {}
func (*SendInput) sessionCommand()       {}
func (*Interrupt) sessionCommand()       {}
func (*MoveCwd) sessionCommand()         {}
func (*RenameSession) sessionCommand()   {}
func (*ArchiveSession) sessionCommand()  {}
func (*ChangeAudience) sessionCommand()  {}
func (*MarkRead) sessionCommand()        {}
func (*DeleteSession) sessionCommand()   {}
func (*DescribeSession) sessionCommand() {}
func (*AwaitInput) sessionCommand()      {}
func (*AdmitChild) sessionCommand()      {}
func (*ClaimTurn) sessionCommand()       {}
func (*AwaitTurn) sessionCommand()       {}
func (*RecordRows) sessionCommand()      {}
func (*EndTurn) sessionCommand()         {}
func (*PublishDelta) sessionCommand()    {}
func (*WakeSession) sessionCommand()     {}
func (*AllowUsage) sessionCommand()      {}
func (*EraseRows) sessionCommand()       {}
func (*MoveImage) sessionCommand()       {}
func (*ReportErased) sessionCommand()    {}

// Event is the sealed set of the events of a session.
//
//sumtype:decl
type Event interface {
	proto.Message
	sessionEvent()
}

func (*SessionStarted) sessionEvent()     {}
func (*RowAdded) sessionEvent()           {}
func (*TurnStarted) sessionEvent()        {}
func (*TurnClaimed) sessionEvent()        {}
func (*InputsJoined) sessionEvent()       {}
func (*BatchRecorded) sessionEvent()      {}
func (*TurnEnded) sessionEvent()          {}
func (*InterruptRequested) sessionEvent() {}
func (*InputsDropped) sessionEvent()      {}
func (*SessionWoken) sessionEvent()       {}
func (*SessionArchived) sessionEvent()    {}
func (*AudienceChanged) sessionEvent()    {}
func (*ReadMarked) sessionEvent()         {}
func (*ChildAdmitted) sessionEvent()      {}
func (*UsageAllowed) sessionEvent()       {}
func (*SessionSealed) sessionEvent()      {}
func (*SessionErased) sessionEvent()      {}

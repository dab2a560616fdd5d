package subjectv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a subject.
//
//sumtype:decl
type Command interface {
	proto.Message
	subjectCommand()
}

func (*ClaimSubject) subjectCommand()   {}
func (*ReleaseSubject) subjectCommand() {}
func (*ResolveSubject) subjectCommand() {}

// Event is the sealed set of the events of a subject.
//
//sumtype:decl
type Event interface {
	proto.Message
	subjectEvent()
}

func (*SubjectClaimed) subjectEvent()  {}
func (*SubjectReleased) subjectEvent() {}

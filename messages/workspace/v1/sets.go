package workspacev1

import "google.golang.org/protobuf/proto"

// Command is what a workspace can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	workspaceCommand()
}

func (*CreateWorkspace) workspaceCommand()   {}
func (*ReportReady) workspaceCommand()       {}
func (*Authorize) workspaceCommand()         {}
func (*DescribeWorkspace) workspaceCommand() {}

// Event is what happened to a workspace.
//
//sumtype:decl
type Event interface {
	proto.Message
	workspaceEvent()
}

func (*WorkspaceCreated) workspaceEvent() {}
func (*WorkspaceReady) workspaceEvent()   {}

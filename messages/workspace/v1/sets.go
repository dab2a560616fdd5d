package workspacev1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a workspace.
//
//sumtype:decl
type Command interface {
	proto.Message
	workspaceCommand()
}

func (*CreateWorkspace) workspaceCommand()        {}
func (*ReportReady) workspaceCommand()            {}
func (*ReportUnhealthy) workspaceCommand()        {}
func (*Authorize) workspaceCommand()              {}
func (*DescribeWorkspace) workspaceCommand()      {}
func (*RenameWorkspace) workspaceCommand()        {}
func (*Suspend) workspaceCommand()                {}
func (*Resume) workspaceCommand()                 {}
func (*SetDefaultModel) workspaceCommand()        {}
func (*ChangeRole) workspaceCommand()             {}
func (*RemoveMember) workspaceCommand()           {}
func (*Invite) workspaceCommand()                 {}
func (*RevokeInvitation) workspaceCommand()       {}
func (*ReportInvitationMailed) workspaceCommand() {}
func (*AcceptInvitation) workspaceCommand()       {}
func (*DescribeInvitation) workspaceCommand()     {}
func (*UpdateMember) workspaceCommand()           {}
func (*SetMemberDisabled) workspaceCommand()      {}
func (*EndInvitations) workspaceCommand()         {}
func (*RecordAudit) workspaceCommand()            {}
func (*ChangeStatus) workspaceCommand()           {}
func (*CreateAnchor) workspaceCommand()           {}
func (*RemoveAnchor) workspaceCommand()           {}
func (*Reanchor) workspaceCommand()               {}
func (*MoveAnchor) workspaceCommand()             {}
func (*BreakAnchor) workspaceCommand()            {}
func (*RepairAnchor) workspaceCommand()           {}
func (*OrphanAnchors) workspaceCommand()          {}
func (*ReportLocksRemoved) workspaceCommand()     {}
func (*RequestAnchorCheck) workspaceCommand()     {}
func (*ReportAnchorsChecked) workspaceCommand()   {}
func (*ListAnchors) workspaceCommand()            {}
func (*RegisterAgent) workspaceCommand()          {}
func (*RemoveAgent) workspaceCommand()            {}
func (*DescribeAgent) workspaceCommand()          {}
func (*UpdateAgent) workspaceCommand()            {}
func (*SetDefaultSession) workspaceCommand()      {}
func (*BindDefaultSession) workspaceCommand()     {}
func (*ClearDefaultSession) workspaceCommand()    {}
func (*ReadDefaultSessions) workspaceCommand()    {}
func (*DescribeMembers) workspaceCommand()        {}
func (*AddAgentUsage) workspaceCommand()          {}
func (*AllowAgentUsage) workspaceCommand()        {}
func (*ReadAgentUsage) workspaceCommand()         {}
func (*ReportSessionsStopped) workspaceCommand()  {}
func (*RegisterApp) workspaceCommand()            {}
func (*ReserveAppPort) workspaceCommand()         {}
func (*ReleaseAppPorts) workspaceCommand()        {}
func (*RemoveApp) workspaceCommand()              {}
func (*FindApp) workspaceCommand()                {}

// Event is the sealed set of the events of a workspace.
//
//sumtype:decl
type Event interface {
	proto.Message
	workspaceEvent()
}

func (*WorkspaceCreated) workspaceEvent()     {}
func (*WorkspaceReady) workspaceEvent()       {}
func (*WorkspaceUnhealthy) workspaceEvent()   {}
func (*WorkspaceRenamed) workspaceEvent()     {}
func (*WorkspaceSuspended) workspaceEvent()   {}
func (*WorkspaceResumed) workspaceEvent()     {}
func (*StatusChanged) workspaceEvent()        {}
func (*DefaultModelChanged) workspaceEvent()  {}
func (*MemberRoleChanged) workspaceEvent()    {}
func (*MemberRemoved) workspaceEvent()        {}
func (*MemberUpdated) workspaceEvent()        {}
func (*MemberDisabledSet) workspaceEvent()    {}
func (*InvitationCreated) workspaceEvent()    {}
func (*InvitationRevoked) workspaceEvent()    {}
func (*InvitationMailed) workspaceEvent()     {}
func (*InvitationAccepted) workspaceEvent()   {}
func (*AuditRecorded) workspaceEvent()        {}
func (*AnchorCreated) workspaceEvent()        {}
func (*AnchorRemoved) workspaceEvent()        {}
func (*AnchorMoved) workspaceEvent()          {}
func (*AnchorBroken) workspaceEvent()         {}
func (*AnchorRepaired) workspaceEvent()       {}
func (*AnchorOrphaned) workspaceEvent()       {}
func (*LocksRemoved) workspaceEvent()         {}
func (*AnchorCheckRequested) workspaceEvent() {}
func (*AnchorsChecked) workspaceEvent()       {}
func (*AgentUpdated) workspaceEvent()         {}
func (*DefaultSessionSet) workspaceEvent()    {}
func (*AgentUsageAdded) workspaceEvent()      {}
func (*AgentUsageAllowed) workspaceEvent()    {}
func (*SessionsStopped) workspaceEvent()      {}
func (*AppPortsChanged) workspaceEvent()      {}

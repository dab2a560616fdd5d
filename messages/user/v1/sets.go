package userv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a user.
//
//sumtype:decl
type Command interface {
	proto.Message
	userCommand()
}

func (*CreateUser) userCommand()          {}
func (*JoinWorkspace) userCommand()       {}
func (*LeaveWorkspace) userCommand()      {}
func (*ReserveWorkspace) userCommand()    {}
func (*ForgetWorkspace) userCommand()     {}
func (*IssueApiKey) userCommand()         {}
func (*RevokeApiKey) userCommand()        {}
func (*DescribeUser) userCommand()        {}
func (*ListApiKeys) userCommand()         {}
func (*ChangeProfile) userCommand()       {}
func (*DescribeStanding) userCommand()    {}
func (*Disable) userCommand()             {}
func (*Enable) userCommand()              {}
func (*SetInternalAdmin) userCommand()    {}
func (*OfferOneTimeLink) userCommand()    {}
func (*ReportLinkMailed) userCommand()    {}
func (*SetPassword) userCommand()         {}
func (*DescribePassword) userCommand()    {}
func (*StartBrowserSession) userCommand() {}
func (*EndBrowserSession) userCommand()   {}
func (*ListBrowserSessions) userCommand() {}
func (*UnlinkIdentities) userCommand()    {}
func (*LinkIdentity) userCommand()        {}
func (*DescribeIdentities) userCommand()  {}
func (*StartImpersonation) userCommand()  {}
func (*AllowGrant) userCommand()          {}
func (*RevokeGrant) userCommand()         {}
func (*ListGrants) userCommand()          {}
func (*RegisterMachine) userCommand()     {}
func (*RemoveMachine) userCommand()       {}
func (*ListMachines) userCommand()        {}

// Event is the sealed set of the events of a user.
//
//sumtype:decl
type Event interface {
	proto.Message
	userEvent()
}

func (*UserCreated) userEvent()           {}
func (*WorkspaceJoined) userEvent()       {}
func (*WorkspaceLeft) userEvent()         {}
func (*WorkspaceReserved) userEvent()     {}
func (*WorkspaceForgotten) userEvent()    {}
func (*ApiKeyIssued) userEvent()          {}
func (*ApiKeyRevoked) userEvent()         {}
func (*ProfileChanged) userEvent()        {}
func (*UserDisabled) userEvent()          {}
func (*UserEnabled) userEvent()           {}
func (*InternalAdminSet) userEvent()      {}
func (*OneTimeLinkOffered) userEvent()    {}
func (*OneTimeLinkMailed) userEvent()     {}
func (*PasswordSet) userEvent()           {}
func (*BrowserSessionStarted) userEvent() {}
func (*BrowserSessionEnded) userEvent()   {}
func (*IdentityLinked) userEvent()        {}
func (*IdentitiesUnlinked) userEvent()    {}
func (*ImpersonationStarted) userEvent()  {}
func (*GrantAllowed) userEvent()          {}
func (*GrantRevoked) userEvent()          {}
func (*MachineRegistered) userEvent()     {}
func (*MachineRenamed) userEvent()        {}
func (*MachineRemoved) userEvent()        {}

package appv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of an app.
//
//sumtype:decl
type Command interface {
	proto.Message
	appCommand()
}

func (*UpdateApp) appCommand()            {}
func (*SetVisibility) appCommand()        {}
func (*SetDisabled) appCommand()          {}
func (*SetRuntimeSettings) appCommand()   {}
func (*RestartApp) appCommand()           {}
func (*RemoveApp) appCommand()            {}
func (*DescribeApp) appCommand()          {}
func (*AwaitApp) appCommand()             {}
func (*AttachDomain) appCommand()         {}
func (*RecheckDomain) appCommand()        {}
func (*RemoveDomain) appCommand()         {}
func (*RegisterApp) appCommand()          {}
func (*FollowAnchor) appCommand()         {}
func (*HaltApp) appCommand()              {}
func (*WakeApp) appCommand()              {}
func (*ReportAsleep) appCommand()         {}
func (*IssueKey) appCommand()             {}
func (*ReportReconciled) appCommand()     {}
func (*OfferPort) appCommand()            {}
func (*ExpirePorts) appCommand()          {}
func (*ReportFreePorts) appCommand()      {}
func (*ReportCrash) appCommand()          {}
func (*ReportStopped) appCommand()        {}
func (*AwaitRuntime) appCommand()         {}
func (*ReportDomain) appCommand()         {}
func (*ReportDomainRefused) appCommand()  {}
func (*ReportDomainReleased) appCommand() {}

// Event is the sealed set of the events of an app.
//
//sumtype:decl
type Event interface {
	proto.Message
	appEvent()
}

func (*AppRegistered) appEvent()          {}
func (*MetadataChanged) appEvent()        {}
func (*RuntimeRequested) appEvent()       {}
func (*RuntimeReconciled) appEvent()      {}
func (*RuntimeFailed) appEvent()          {}
func (*PortOffered) appEvent()            {}
func (*PortsReleased) appEvent()          {}
func (*KeyIssued) appEvent()              {}
func (*KeyRevoked) appEvent()             {}
func (*InvitingEnded) appEvent()          {}
func (*VisibilityChanged) appEvent()      {}
func (*RuntimeSettingsChanged) appEvent() {}
func (*AppDisabled) appEvent()            {}
func (*AppEnabled) appEvent()             {}
func (*AppHalted) appEvent()              {}
func (*AppSlept) appEvent()               {}
func (*AppWoken) appEvent()               {}
func (*AppCrashed) appEvent()             {}
func (*AnchorFollowed) appEvent()         {}
func (*RemovalRequested) appEvent()       {}
func (*RemovalFailed) appEvent()          {}
func (*AppRemoved) appEvent()             {}
func (*DomainRequested) appEvent()        {}
func (*DomainReported) appEvent()         {}
func (*DomainRecheckRequested) appEvent() {}
func (*DomainRemovalRequested) appEvent() {}
func (*DomainRefused) appEvent()          {}
func (*DomainReleased) appEvent()         {}

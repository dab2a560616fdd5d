package bindingv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a binding.
//
//sumtype:decl
type Command interface {
	proto.Message
	bindingCommand()
}

func (*ClaimBinding) bindingCommand()        {}
func (*RecheckBinding) bindingCommand()      {}
func (*ReleaseBinding) bindingCommand()      {}
func (*CheckBinding) bindingCommand()        {}
func (*IssueCertificate) bindingCommand()    {}
func (*CleanUpBinding) bindingCommand()      {}
func (*ReportCheck) bindingCommand()         {}
func (*ReportIssued) bindingCommand()        {}
func (*ReportIssueFailed) bindingCommand()   {}
func (*ReportCleanedUp) bindingCommand()     {}
func (*ReportCleanUpFailed) bindingCommand() {}
func (*RepairBinding) bindingCommand()       {}
func (*RenewBinding) bindingCommand()        {}
func (*DescribeBinding) bindingCommand()     {}

// Event is the sealed set of the events of a binding.
//
//sumtype:decl
type Event interface {
	proto.Message
	bindingEvent()
}

func (*BindingClaimed) bindingEvent()       {}
func (*ClaimRefused) bindingEvent()         {}
func (*CheckRequested) bindingEvent()       {}
func (*Checked) bindingEvent()              {}
func (*CertificateRequested) bindingEvent() {}
func (*CertificateIssued) bindingEvent()    {}
func (*IssueFailed) bindingEvent()          {}
func (*ReleaseRequested) bindingEvent()     {}
func (*CleanUpRequested) bindingEvent()     {}
func (*CleanUpFailed) bindingEvent()        {}
func (*BindingReleased) bindingEvent()      {}
func (*DomainShown) bindingEvent()          {}

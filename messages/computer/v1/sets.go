package computerv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a computer.
//
//sumtype:decl
type Command interface {
	proto.Message
	computerCommand()
}

func (*RequestComputer) computerCommand()    {}
func (*Reprovision) computerCommand()        {}
func (*BackUp) computerCommand()             {}
func (*Restore) computerCommand()            {}
func (*RetireComputer) computerCommand()     {}
func (*ReportProvisioned) computerCommand()  {}
func (*ReportBackedUp) computerCommand()     {}
func (*ReportRestored) computerCommand()     {}
func (*ReportRetired) computerCommand()      {}
func (*ReportRemoved) computerCommand()      {}
func (*ReportFailed) computerCommand()       {}
func (*RecordSample) computerCommand()       {}
func (*ReportMissing) computerCommand()      {}
func (*DescribeComputer) computerCommand()   {}
func (*AnnounceLoss) computerCommand()       {}
func (*VerifyBackup) computerCommand()       {}
func (*CancelTask) computerCommand()         {}
func (*SetBackupPolicy) computerCommand()    {}
func (*ApplyNodePolicy) computerCommand()    {}
func (*BackUpOnSchedule) computerCommand()   {}
func (*ReportCovered) computerCommand()      {}
func (*ReportVerified) computerCommand()     {}
func (*StartProcess) computerCommand()       {}
func (*ReportProcessEnded) computerCommand() {}

// Event is the sealed set of the events of a computer.
//
//sumtype:decl
type Event interface {
	proto.Message
	computerEvent()
}

func (*TaskRequested) computerEvent()       {}
func (*ComputerProvisioned) computerEvent() {}
func (*BackupTaken) computerEvent()         {}
func (*BackupDropped) computerEvent()       {}
func (*BackupRemoved) computerEvent()       {}
func (*BackupRestored) computerEvent()      {}
func (*ComputerRetired) computerEvent()     {}
func (*TaskFailed) computerEvent()          {}
func (*ComputerMissed) computerEvent()      {}
func (*ComputerLost) computerEvent()        {}
func (*ComputerFound) computerEvent()       {}
func (*WorkReported) computerEvent()        {}
func (*BackupCovered) computerEvent()       {}
func (*BackupVerified) computerEvent()      {}
func (*BackupPolicyChanged) computerEvent() {}
func (*BackupPostponed) computerEvent()     {}
func (*ProcessStarted) computerEvent()      {}
func (*ProcessEnded) computerEvent()        {}

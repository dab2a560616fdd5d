package certificatesv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of the store of certificates.
//
//sumtype:decl
type Command interface {
	proto.Message
	certificatesCommand()
}

func (*StoreFiles) certificatesCommand()  {}
func (*RemoveFiles) certificatesCommand() {}
func (*AcquireLock) certificatesCommand() {}
func (*RenewLock) certificatesCommand()   {}
func (*ReleaseLock) certificatesCommand() {}
func (*TakeOrder) certificatesCommand()   {}

// Event is the sealed set of the events of the store of certificates.
//
//sumtype:decl
type Event interface {
	proto.Message
	certificatesEvent()
}

func (*LockAcquired) certificatesEvent() {}
func (*LockReleased) certificatesEvent() {}
func (*OrderTaken) certificatesEvent()   {}

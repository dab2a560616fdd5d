// Package entity defines what all kinds of entity share: commands, errors, principals and their capabilities, the
// descriptor of a kind (Rules), and validation rules that several kinds apply.
//
// Each kind of entity has a package below this one, which holds pure functions. Decide turns a command into events or an
// error. Evolve applies an event to a state. Reply builds the answer to the sender of the command. These packages use no
// clock, randomness, goroutine or I/O: the time is an argument, and ids and hashed secrets arrive inside commands.
package entity

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The names of the kinds of entity. A kind and an identity together address one entity.
const (
	KindUser       = "user"
	KindEmail      = "email"
	KindCredential = "credential"
	KindSlug       = "slug"
	KindWorkspace  = "workspace"
	KindActivity   = "activity"
	KindComputer   = "computer"
	KindDevice     = "device"
	KindClient     = "client"
	KindGrant      = "grant"
	KindSession    = "session"
	KindApp        = "app"
	KindBinding    = "binding"
	KindVisit      = "visit"
	KindSubject    = "subject"
	// KindCertificates is the kind of the one store of certificates.
	KindCertificates = "certificates"
)

// Command is a message addressed to one entity, together with its sender.
type Command struct {
	Kind     string
	Identity string
	// Principal is the sender.
	Principal *wirev1.Principal
	// RequestID is the id of the HTTP request that caused the command.
	RequestID string
	// ID, if set, makes the command idempotent: the entity applies it once and repeats its reply to each further delivery.
	ID string
	// Source, if set, marks the command of a reaction, which the entity applies once for each source and index.
	Source  *Source
	Message proto.Message
}

// Call is the context of a command that a rule may use beside its state and the command itself.
type Call struct {
	// Now is the time of the decision, in milliseconds precision.
	Now       time.Time
	Identity  string
	Principal *wirev1.Principal
	// Version is the version that the first event of the decision will have in the entity's stream.
	Version uint64
	// Role is the role of the principal in the workspace that owns the entity, which the owner determines when it authorizes the
	// command; for the platform it is the role of an owner. It is unspecified for entities without an owner.
	Role workspacev1.Role
}

// At returns the time of the call in milliseconds since the Unix epoch, the unit of the API and of stored messages.
func (c Call) At() int64 { return c.Now.UnixMilli() }

// Platform returns the principal of the platform's own work: recovery, reactions, timers, tasks, and operators on the
// server's machine.
func Platform() *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM}
}

// MaxTime is the greatest timestamp of the API (specification, Limits), in milliseconds since the Unix epoch.
const MaxTime = 1<<53 - 1

// UsePrecision is the least interval between two updates of a last_used_at (decisions, section 3).
const UsePrecision = time.Minute

// IsUseRecorded reports whether a use at a time needs no update of lastUsedAt, because the last update was less than
// UsePrecision before. Both are in milliseconds since the Unix epoch; a lastUsedAt of 0 means never.
func IsUseRecorded(lastUsedAt, at int64) bool {
	return lastUsedAt != 0 && !HasPassed(lastUsedAt, at, UsePrecision)
}

// Code classifies an error for API clients.
type Code string

// The codes of the specification and of decisions, section 1.
const (
	InvalidRequest       Code = "invalid_request"
	InvalidCursor        Code = "invalid_cursor"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	PayloadTooLarge      Code = "payload_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	MisdirectedRequest   Code = "misdirected_request"
	SlugTaken            Code = "slug_taken"
	EmailTaken           Code = "email_taken"
	WorkspaceSuspended   Code = "workspace_suspended"
	WorkspaceClosed      Code = "workspace_closed"
	BillingUser          Code = "billing_user"
	FinalOwner           Code = "final_owner"
	AlreadyMember        Code = "already_member"
	InvitationExpired    Code = "invitation_expired"
	InvitationRevoked    Code = "invitation_revoked"
	InvitationConsumed   Code = "invitation_consumed"
	DeviceInUse          Code = "device_in_use"
	LinkInvalid          Code = "link_invalid"
	AnchorConflict       Code = "anchor_conflict"
	LimitReached         Code = "limit_reached"
	InvalidCwd           Code = "invalid_cwd"
	CwdConflict          Code = "cwd_conflict"
	NoDefaultSession     Code = "no_default_session"
	NoPendingQuestion    Code = "no_pending_question"
	RequestIDReused      Code = "request_id_reused"
	TurnTaken            Code = "turn_taken"
	UploadEnded          Code = "upload_ended"
	PathInUse            Code = "path_in_use"
	PortInUse            Code = "port_in_use"
	ReconcileFailed      Code = "reconcile_failed"
	DomainOccupied       Code = "domain_occupied"
	HostnameInUse        Code = "hostname_in_use"
	DomainCleanupPending Code = "domain_cleanup_pending"
	DomainNotConfigured  Code = "domain_not_configured"
	RateLimited          Code = "rate_limited"
	InsufficientStorage  Code = "insufficient_storage"
	Unavailable          Code = "unavailable"
	Internal             Code = "internal"
)

// Error is the only error type that API clients see. Its message is shown to people and names the invalid field, if any.
type Error struct {
	Code    Code
	Message string
	// Reason, if it is set, distinguishes the causes of a code for programs.
	Reason string
	// RetryAfter is the pause after which a retry may succeed; 0 if a retry will not help or the pause is unknown.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf returns an error with the code and the formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// IsRefusal reports whether an entity refused a command for good: the command had no effect, and sending it again would
// not help.
func IsRefusal(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code != Unavailable && refusal.Code != Internal
}

// HasCode reports whether an error is an *Error with one of the codes.
func HasCode(err error, codes ...Code) bool {
	refusal, is := errors.AsType[*Error](err)
	return is && slices.Contains(codes, refusal.Code)
}

// IsHidden reports whether an error says that something does not exist for the caller.
func IsHidden(err error) bool { return HasCode(err, NotFound, Forbidden) }

// UnknownCommand returns the error for a message that is not a command of the kind.
func UnknownCommand(kind string, m proto.Message) *Error {
	return Errorf(InvalidRequest, "%s is not a command of %s", m.ProtoReflect().Descriptor().Name(), kind)
}

// MessageName returns the full name of a message. Message decodes a message by this name.
func MessageName(m proto.Message) string { return string(m.ProtoReflect().Descriptor().FullName()) }

// Message decodes a message from its full name and its encoded bytes. It fails if no message has the name or the bytes are
// not an encoding of that message.
func Message(name string, payload []byte) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("message %q: %w", name, err)
	}
	m := t.New().Interface()
	if err := proto.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("message %q: %w", name, err)
	}
	return m, nil
}

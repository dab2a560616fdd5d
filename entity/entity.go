// Package entity is the vocabulary that the kinds below it share: errors, principals, capabilities, commands.
//
// Every kind of entity is a package below this one with pure rules: Decide turns a command into events or an error,
// Evolve turns a state and an event into the next state, Reply tells what the asker gets. No clock, randomness,
// goroutine or I/O is used here; time is an argument, ids and secrets arrive inside commands.
package entity

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Kind names a sort of entity; Identity names one of them.
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
)

// Command is a message for one entity, with who sends it.
type Command struct {
	Kind      string
	Identity  string
	Principal *wirev1.Principal
	// RequestID is the HTTP request that it comes from.
	RequestID string
	// ID, where set, makes the command take effect once, however often it arrives.
	ID string
	// Source, where set, identifies the command of a reaction, which takes effect once, however often it arrives.
	Source  *Source
	Message proto.Message
}

// Code classifies an error for whoever asked.
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
	RateLimited          Code = "rate_limited"
	Unavailable          Code = "unavailable"
	Internal             Code = "internal"
)

// Error refuses a command. Its message is for people and names the field where there is one.
type Error struct {
	Code    Code
	Message string
	// RetryAfter says when trying again may help; 0: it will not, or unknown.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// IsRefusal reports whether an entity refused a command for good: the command had no effect, and sending it again would
// not help.
func IsRefusal(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code != Unavailable && refusal.Code != Internal
}

// Errorf makes an error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Platform is the principal of the platform's own work: recovery, reactors, operators on the server's own machine.
func Platform() *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM}
}

// MaxTime is the greatest timestamp (specification, Limits), in milliseconds since the Unix epoch.
const MaxTime = 1<<53 - 1

// UsePrecision is how far last_used_at may trail (decisions, section 3: once a minute at most).
const UsePrecision = time.Minute

// Call is what a rule may know beside its state and command.
type Call struct {
	// Now has millisecond precision.
	Now       time.Time
	Identity  string
	Principal *wirev1.Principal
	// Version is the one that the stream's next event gets.
	Version uint64
}

// At is the call's time in the API's unit, milliseconds since the Unix epoch.
func (c Call) At() int64 { return c.Now.UnixMilli() }

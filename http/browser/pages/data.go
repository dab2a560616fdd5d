package pages

// Problem is the data of the page "problem", which shows an error.
type Problem struct {
	Title, Text string
	// Request is the id of the request, for the operators; empty if it does not help them.
	Request string
	// Link is a path to continue with, and LinkText its text; empty: none.
	Link, LinkText string
}

// SignIn is the data of the page "sign-in".
type SignIn struct {
	Email string
	// Next is the path to continue with after signing in.
	Next string
	// Problem is the reason why the last attempt failed; empty: there was none.
	Problem string
	// Provider is the name of the OpenID Connect provider; empty: none.
	Provider string
	// OffersReset reports that people who forgot their password can have a link mailed.
	OffersReset bool
}

// Continue is the data of the page "continue", after signing in.
type Continue struct {
	// Next is the path to continue with.
	Next string
}

// Forgotten is the data of the page "forgotten".
type Forgotten struct {
	// Requested reports that a link was requested, even if none is sent.
	Requested bool
}

// SetPassword is the data of the page "set-password".
type SetPassword struct {
	Email, Token string
	// MinLength and MaxLength are the limits of the password's length, in characters.
	MinLength, MaxLength int
	Problem              string
}

// Invitation is the data of the page "invitation".
type Invitation struct {
	Token                           string
	Workspace, Inviter, Role, Email string
	ExpiresAt                       int64
	// HasAccount reports that an account owns the invited address.
	HasAccount bool
	// MustSetPassword reports that the visitor has accepted the invitation and only has to set a password.
	MustSetPassword bool
	// Name is the name that the visitor entered, and Problem the reason why it is invalid.
	Name, Problem string
	// SignedInAs is the email address of the visitor; empty if nobody is signed in.
	SignedInAs string
	// IsForVisitor reports that the visitor's account owns the invited address.
	IsForVisitor bool
	// SignIn is the path of the sign-in page that returns to the invitation.
	SignIn string
}

// Account is the data of the page "account".
type Account struct {
	Name, Email string
	Sessions    []Session
	Grants      []Grant
	// MoreGrants reports that there are more grants than the page shows.
	MoreGrants bool
	Keys       []Key
	// MoreKeys reports that there are older keys than the page shows.
	MoreKeys bool
	// KeyName and KeyLasts are the name and the lifetime that were entered for a key, and KeyProblem the reason why it was
	// refused.
	KeyName, KeyLasts, KeyProblem string
	// HasPassword reports that the account has a password, and PasswordProblem is the reason why it was not changed.
	HasPassword     bool
	PasswordProblem string
	// OffersReset reports that people who forgot their password can have a link mailed.
	OffersReset bool
	// Notice reports the action that was just done; empty: none.
	Notice string
}

// Key is an API key. ExpiresAt is 0 if it does not expire, LastUsedAt if it was never used.
type Key struct {
	ID, Name, Prefix                 string
	CreatedAt, ExpiresAt, LastUsedAt int64
	Expired                          bool
}

// NewKey is the data of the page "key", which shows a new API key once.
type NewKey struct {
	Name, Key string
	// ExpiresAt is 0 if the key does not expire.
	ExpiresAt int64
}

// Session is a browser session.
type Session struct {
	ID, Browser, Address string
	StartedAt, ExpiresAt int64
	// Current reports that it is the visitor's session.
	Current bool
}

// Grant is the access that a person granted to an application.
type Grant struct {
	ID, Client, Host, Workspace string
	Scopes                      []string
	CreatedAt                   int64
}

// Consent is the data of the page "consent", which asks a person what an application may do.
type Consent struct {
	// Action is the path of the form. It is sent with the Hidden fields, "workspace", a "scope" for each granted one, and
	// "decision", which is "allow" or "deny".
	Action string
	Hidden []Field
	// Client is the name that the application chose, Host the host of its redirect URI.
	Client, Host string
	Email        string
	Workspaces   []Choice
	Scopes       []Choice
	Problem      string
}

// Field is a hidden field of a form.
type Field struct{ Name, Value string }

// Choice is an option of a list.
type Choice struct {
	Value, Label string
	Chosen       bool
}

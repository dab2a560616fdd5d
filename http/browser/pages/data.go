package pages

// Problem is what the page "problem" shows: why there is nothing else.
type Problem struct {
	Title, Text string
	// Request is an id that an operator can find; empty where there is nothing to look for.
	Request string
	// Link leads on, under the words in LinkText; empty: nowhere.
	Link, LinkText string
}

// SignIn is what the page "sign-in" shows.
type SignIn struct {
	Email string
	// Next is where signing in leads, a path of this server.
	Next string
	// Problem says why the last try failed; empty: there was none.
	Problem string
	// Provider is the name of the OpenID Connect provider; empty: none.
	Provider string
	// Forgotten tells that who forgot their password can have a link mailed.
	OffersReset bool
}

// Forgotten is what the page "forgotten" shows.
type Forgotten struct {
	// Asked tells that a link was asked for, whether or not one is sent.
	Requested bool
}

// SetPassword is what the page "set-password" shows.
type SetPassword struct {
	Email, Token string
	// Least and Most are the password's length in characters.
	MinLength, MaxLength int
	Problem              string
}

// Invitation is what the page "invitation" shows.
type Invitation struct {
	Token                           string
	Workspace, Inviter, Role, Email string
	ExpiresAt                       int64
	// Known tells that the address is a person's already.
	HasAccount bool
	// Back tells that the visitor accepted it a moment ago, and has only to set a password.
	MustSetPassword bool
	// Name is what a newcomer typed for theirs, and Problem what is wrong with it.
	Name, Problem string
	// SignedInAs is the address of the visitor; empty: nobody is signed in.
	SignedInAs string
	// Mine tells that the invitation is the visitor's.
	IsForVisitor bool
	// SignIn leads to signing in and back.
	SignIn string
}

// Account is what the page "account" shows.
type Account struct {
	Name, Email string
	Sessions    []Session
	Grants      []Grant
	// MoreGrants tells that there are more than are shown.
	MoreGrants bool
	Keys       []Key
	// MoreKeys tells that there are older ones than are shown.
	MoreKeys bool
	// KeyName and KeyLasts are what was typed and chosen for a key, and KeyProblem what is wrong with it.
	KeyName, KeyLasts, KeyProblem string
	// HasPassword tells that there is one to change, and PasswordProblem why it was not.
	HasPassword     bool
	PasswordProblem string
	// Forgotten tells that who forgot their password can have a link mailed.
	OffersReset bool
	// Notice says what was just done; empty: nothing.
	Notice string
}

// Key is an API key of a person. ExpiresAt and LastUsedAt are 0 where it never does, and was not used.
type Key struct {
	ID, Name, Prefix                 string
	CreatedAt, ExpiresAt, LastUsedAt int64
	Expired                          bool
}

// NewKey is what the page "key" shows: an API key, this once.
type NewKey struct {
	Name, Key string
	// ExpiresAt is 0 where it never does.
	ExpiresAt int64
}

// Session is a browser session of a person.
type Session struct {
	ID, Browser, Address string
	StartedAt, ExpiresAt int64
	// Current tells that it is the visitor's own.
	Current bool
}

// Grant is what a person allowed an application.
type Grant struct {
	ID, Client, Host, Workspace string
	Scopes                      []string
	CreatedAt                   int64
}

// Consent is what the page "consent" shows: a person is asked what an application may do.
type Consent struct {
	// Action is the path that the answer is sent to, with the Hidden fields, "workspace", each granted "scope", and
	// "decision", which is "allow" or "deny".
	Action string
	Hidden []Field
	// Client is the application's name as it calls itself, Host where its answers go.
	Client, Host string
	Email        string
	Workspaces   []Choice
	Scopes       []Choice
	Problem      string
}

// Field is a hidden field of a form.
type Field struct{ Name, Value string }

// Choice is one of several.
type Choice struct {
	Value, Label string
	Chosen       bool
}

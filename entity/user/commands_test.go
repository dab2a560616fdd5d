package user_test

import (
	"bytes"
	"fmt"
	"time"

	"pgregory.net/rapid"

	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const argon = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHRzYWx0c2FsdA$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"

func grantID(n int) string   { return fmt.Sprintf("ogr_01j%023d", n) }
func machineID(n int) string { return fmt.Sprintf("mch_01j%023d", n) }
func sessionID(n int) string { return fmt.Sprintf("bse_%d", n) }

func link(expires int64) *userv1.OfferOneTimeLink {
	return &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{SecretSha256: secret, ExpiresAt: expires}}
}

func session(n int) *userv1.StartBrowserSession {
	return &userv1.StartBrowserSession{Session: &userv1.BrowserSession{
		Id: sessionID(n), SecretSha256: secret, ExpiresAt: noon.UnixMilli() + 60_000, UserAgent: "Firefox", Address: "192.0.2.1",
	}}
}

func impersonation(id string) *userv1.StartImpersonation {
	return &userv1.StartImpersonation{
		CredentialId: id, SecretSha256: secret, ImpersonatorId: "usr_bob", ExpiresAt: noon.UnixMilli() + 60_000, Reason: "asked to",
	}
}

func allow(n int) *userv1.AllowGrant {
	return &userv1.AllowGrant{Grant: &userv1.Grant{
		Id: grantID(n), ClientId: "cli_1", ClientName: "Editor", RedirectHost: "example.com", WorkspaceId: "ws_1",
		Scopes: []string{"files:read"}, WorkspaceSlug: "acme", WorkspaceName: "Acme",
	}}
}

// drawAccountCommand draws commands of operators and of reactions.
func drawAccountCommand(now time.Time) *rapid.Generator[userv1.Command] {
	return rapid.Custom(func(t *rapid.T) userv1.Command {
		workspace := rapid.SampledFrom([]string{"", "ws_1", "ws_2"}).Draw(t, "workspace")
		switch rapid.IntRange(0, 10).Draw(t, "standing") {
		case 0:
			return &userv1.JoinWorkspace{WorkspaceId: workspace, Created: rapid.Bool().Draw(t, "created")}
		case 9:
			return &userv1.ReserveWorkspace{WorkspaceId: workspace, Limit: 2}
		case 10:
			return &userv1.ForgetWorkspace{WorkspaceId: workspace}
		case 1:
			return &userv1.LeaveWorkspace{WorkspaceId: workspace}
		case 2:
			return &userv1.DescribeUser{}
		case 3:
			return &userv1.DescribeStanding{}
		case 4:
			return &userv1.Disable{}
		case 5:
			return &userv1.Enable{}
		case 6:
			return &userv1.SetInternalAdmin{InternalAdmin: rapid.Bool().Draw(t, "admin")}
		case 7:
			c := &userv1.ChangeProfile{}
			if rapid.Bool().Draw(t, "first") {
				c.FirstName = new(rapid.StringN(0, 2, -1).Draw(t, "first name"))
			}
			if rapid.Bool().Draw(t, "last") {
				c.LastName = new(rapid.StringN(0, 2, -1).Draw(t, "last name"))
			}
			return c
		default:
			c := impersonation(rapid.SampledFrom([]string{"imp_1", "imp_2"}).Draw(t, "credential"))
			c.ExpiresAt = now.UnixMilli() + rapid.SampledFrom([]int64{0, 1, 60_000, 3_600_001}).Draw(t, "expires in")
			return c
		}
	})
}

// drawSignInCommand draws commands for links, passwords and browser sessions.
func drawSignInCommand(now time.Time) *rapid.Generator[userv1.Command] {
	return rapid.Custom(func(t *rapid.T) userv1.Command {
		other := bytes.Repeat([]byte("secret! "), 5)[8:]
		n := rapid.IntRange(1, 3).Draw(t, "n")
		switch rapid.IntRange(0, 9).Draw(t, "entering") {
		case 0:
			return link(now.UnixMilli() + rapid.SampledFrom([]int64{0, 1, 120_000}).Draw(t, "expires in"))
		case 1:
			return &userv1.SetPassword{
				LinkSecretSha256: rapid.SampledFrom([][]byte{secret, secret, other[:31], nil}).Draw(t, "secret"),
				PasswordHash:     rapid.SampledFrom([]string{argon, argon + "YQ", "", "x"}).Draw(t, "hash"),
			}
		case 2:
			return &userv1.DescribePassword{}
		case 3:
			c := session(n)
			c.Session.ExpiresAt = now.UnixMilli() + rapid.SampledFrom([]int64{0, 1, 120_000}).Draw(t, "expires in")
			return c
		case 4:
			return &userv1.EndBrowserSession{SessionId: sessionID(n)}
		case 5:
			c := sessionWithIdentity(n, issuer+rapid.SampledFrom([]string{"", "/a"}).Draw(t, "issuer"), rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "subject"))
			c.Session.ExpiresAt = now.UnixMilli() + 120_000
			return c
		case 6:
			return &userv1.UnlinkIdentities{}
		case 7:
			return linking(issuer+rapid.SampledFrom([]string{"", "/a"}).Draw(t, "issuer"), rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "subject"))
		case 8:
			return &userv1.UnlinkIdentities{Identity: linking(issuer, rapid.SampledFrom([]string{"one", "two"}).Draw(t, "subject")).GetIdentity()}
		default:
			return &userv1.ListBrowserSessions{}
		}
	})
}

// drawGrantCommand draws commands for grants and machines.
func drawGrantCommand() *rapid.Generator[userv1.Command] {
	return rapid.Custom(func(t *rapid.T) userv1.Command {
		n, limit := rapid.IntRange(1, 3).Draw(t, "n"), rapid.Int32Range(0, 3).Draw(t, "limit")
		switch rapid.IntRange(0, 5).Draw(t, "holding") {
		case 0:
			return allow(n)
		case 1:
			return &userv1.RevokeGrant{GrantId: grantID(n)}
		case 2:
			return &userv1.ListGrants{After: rapid.SampledFrom([]string{"", grantID(n)}).Draw(t, "after"), Limit: limit}
		case 3:
			return &userv1.RegisterMachine{
				MachineId: machineID(n), Name: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "name"),
				SyncDeviceId: rapid.SampledFrom([]string{"A", "B", ""}).Draw(t, "device"),
			}
		case 4:
			return &userv1.RemoveMachine{MachineId: machineID(n)}
		default:
			return &userv1.ListMachines{After: rapid.SampledFrom([]string{"", machineID(n)}).Draw(t, "after"), Limit: limit}
		}
	})
}

package http_test

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"

	"github.com/atelier-run/atelier/entity"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// requests has an example of each operation, which succeeds for callers with access.
var requests = map[string]func(*scene) exampleRequest{
	"GET /v1/whoami": fixed("/v1/whoami"),
	"POST /mcp":      mcpRequest,
	"POST /v1/workspaces": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/v1/workspaces", body: fmt.Sprintf(`{"slug":"new%d","name":"New"}`, sc.stage.ids.Add(1))}
	},
	"PATCH /v1/workspaces/{workspaceSlug}": func(sc *scene) exampleRequest {
		return exampleRequest{
			target: "/v1/workspaces/" + sc.slug,
			body:   fmt.Sprintf(`{"slug":"moved%d","publicUrlBreakAcknowledged":true}`, sc.stage.ids.Add(1)),
		}
	},
	"POST /v1/ws/{workspaceSlug}/computer/exec": inSpace("/computer/exec", `{"argv":["true"]}`),
	// The recorder of this test is no connection: callers with access get this refusal.
	"GET /v1/ws/{workspaceSlug}/computer/terminal": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/computer/terminal"), refusal: "this operation is a WebSocket"}
	},
	"POST /v1/ws/{workspaceSlug}/reprovision":          inSpace("/reprovision", ""),
	"PUT /v1/ws/{workspaceSlug}/admin/suspension":      inSpace("/admin/suspension", `{"suspended":true}`),
	"GET /v1/ws/{workspaceSlug}/admin/suspension":      inSpace("/admin/suspension", ""),
	"GET /v1/ws/{workspaceSlug}/anchors":               inSpace("/anchors", ""),
	"GET /v1/ws/{workspaceSlug}/skills":                inSpace("/skills", ""),
	"GET /v1/ws/{workspaceSlug}/agents":                inSpace("/agents", ""),
	"POST /v1/ws/{workspaceSlug}/agents":               inSpace("/agents", `{"path":"writer"}`),
	"GET /v1/ws/{workspaceSlug}/agents/{agentSlug}":    inSpace("/agents/notes", ""),
	"DELETE /v1/ws/{workspaceSlug}/agents/{agentSlug}": inSpace("/agents/notes", ""),
	"GET /v1/ws/{workspaceSlug}/members":               inSpace("/members", ""),
	"PUT /v1/ws/{workspaceSlug}/default-model":         inSpace("/default-model", `{"tier":"frontier"}`),
	"GET /v1/ws/{workspaceSlug}/audit":                 inSpace("/audit", ""),
	"GET /v1/ws/{workspaceSlug}/telemetry":             inSpace("/telemetry", ""),
	"GET /v1/ws/{workspaceSlug}/invites":               inSpace("/invites", ""),
	"GET /v1/ws/{workspaceSlug}/invite-deliveries":     inSpace("/invite-deliveries", ""),
	"POST /v1/ws/{workspaceSlug}/invites":              inSpace("/invites", `{"email":"somebody@example.com"}`),
	"DELETE /v1/ws/{workspaceSlug}/invites/{inviteId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/invites/" + sc.invitation)}
	},
	"POST /v1/ws/{workspaceSlug}/anchors/{anchorId}/reanchor": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/anchors/" + sc.anchor + "/reanchor"), body: `{"path":"b.txt"}`}
	},
	"PATCH /v1/ws/{workspaceSlug}/members/{userId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/members/" + sc.people["target"].id), body: `{"role":"viewer"}`}
	},
	"DELETE /v1/ws/{workspaceSlug}/members/{userId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/members/" + sc.people["target"].id)}
	},

	"GET /v1/user/profile":       fixed("/v1/user/profile"),
	"PATCH /v1/user/profile":     fixedBody("/v1/user/profile", `{"firstName":"Ann"}`),
	"GET /v1/user/api-keys":      fixed("/v1/user/api-keys"),
	"POST /v1/user/api-keys":     fixedBody("/v1/user/api-keys", `{"name":"laptop"}`),
	"GET /v1/user/limited-keys":  fixed("/v1/user/limited-keys"),
	"POST /v1/user/limited-keys": fixedBody("/v1/user/limited-keys", `{"name":"laptop","capabilities":["files:read"]}`),
	"GET /v1/user/oauth-grants":  fixed("/v1/user/oauth-grants"),
	"GET /v1/user/sync-machines": fixed("/v1/user/sync-machines"),
	"GET /v1/user/invitations":   fixed("/v1/user/invitations"),
	"DELETE /v1/user/api-keys/{keyId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/v1/user/api-keys/" + sc.ownKey()}
	},
	"DELETE /v1/user/oauth-grants/{grantId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/v1/user/oauth-grants/" + sc.ownGrant()}
	},
	"POST /v1/user/sync-machines": func(*scene) exampleRequest {
		return exampleRequest{target: "/v1/user/sync-machines", body: fmt.Sprintf(`{"name":"laptop","syncDeviceId":%q}`, newDevice())}
	},
	"DELETE /v1/user/sync-machines/{machineId}": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/v1/user/sync-machines/" + sc.ownMachine()}
	},
	"POST /v1/user/invitations/{inviteId}/accept": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/v1/user/invitations/" + sc.addressed() + "/accept"}
	},

	"GET /account": fixed("/account"),
	"POST /account/sessions/{sessionId}/end": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/account/sessions/" + sc.ownSession() + "/end"}
	},
	"POST /account/grants/{grantId}/revoke": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/account/grants/" + sc.ownGrant() + "/revoke"}
	},

	"POST /account/keys": fixedForm("/account/keys", "name=laptop&lasts=30", ""),
	"POST /account/keys/{keyId}/revoke": func(sc *scene) exampleRequest {
		return exampleRequest{target: "/account/keys/" + sc.ownKey() + "/revoke"}
	},
	// None of the accounts has a password, so callers with access get this refusal.
	"POST /account/password": fixedForm("/account/password", "current=guess", "The password is wrong."),

	"GET /v1/ws/{workspaceSlug}/file-activity":                inSpace("/file-activity?path=a.txt", ""),
	"GET /v1/ws/{workspaceSlug}/file-activity/seen-by":        inSpace("/file-activity/seen-by?path=a.txt", ""),
	"GET /v1/ws/{workspaceSlug}/file-activity/latest-writers": inSpace("/file-activity/latest-writers?dir=&path=a.txt", ""),
	"GET /v1/ws/{workspaceSlug}/file-activity/feed":           inSpace("/file-activity/feed", ""),
	"GET /v1/ws/{workspaceSlug}/file-activity/events":         inSpace("/file-activity/events", ""),

	"GET /v1/ws/{workspaceSlug}/drive":              inSpace("/drive", ""),
	"HEAD /v1/ws/{workspaceSlug}/drive":             inSpace("/drive", ""),
	"OPTIONS /v1/ws/{workspaceSlug}/drive":          inSpace("/drive", ""),
	"PROPFIND /v1/ws/{workspaceSlug}/drive":         inSpace("/drive", "", "Depth", "0"),
	"GET /v1/ws/{workspaceSlug}/drive/{path}":       inSpace("/drive/a.txt", ""),
	"HEAD /v1/ws/{workspaceSlug}/drive/{path}":      inSpace("/drive/a.txt", ""),
	"OPTIONS /v1/ws/{workspaceSlug}/drive/{path}":   inSpace("/drive/a.txt", ""),
	"PROPFIND /v1/ws/{workspaceSlug}/drive/{path}":  inSpace("/drive/a.txt", "", "Depth", "0"),
	"PUT /v1/ws/{workspaceSlug}/drive/{path}":       inSpace("/drive/new.txt", "text"),
	"DELETE /v1/ws/{workspaceSlug}/drive/{path}":    inSpace("/drive/a.txt", ""),
	"MKCOL /v1/ws/{workspaceSlug}/drive/{path}":     inSpace("/drive/folder", ""),
	"LOCK /v1/ws/{workspaceSlug}/drive/{path}":      inSpace("/drive/a.txt", lockBody, "Content-Type", "application/xml"),
	"PROPPATCH /v1/ws/{workspaceSlug}/drive/{path}": inSpace("/drive/a.txt", proppatchBody, "Content-Type", "application/xml"),
	"COPY /v1/ws/{workspaceSlug}/drive/{path}":      toOther,
	"MOVE /v1/ws/{workspaceSlug}/drive/{path}":      toOther,
	"UNLOCK /v1/ws/{workspaceSlug}/drive/{path}":    unlocked,
	"PROPFIND /":                      above("/"),
	"PROPFIND /v1":                    above("/v1"),
	"PROPFIND /v1/ws":                 above("/v1/ws"),
	"PROPFIND /v1/ws/{workspaceSlug}": inSpace("", "", "Depth", "1"),
	// WebDAV itself refuses to create, move, remove or write the root.
	"PUT /v1/ws/{workspaceSlug}/drive":       onRoot("the path is a folder"),
	"DELETE /v1/ws/{workspaceSlug}/drive":    onRoot("root cannot be changed"),
	"MKCOL /v1/ws/{workspaceSlug}/drive":     onRoot("the path already exists"),
	"COPY /v1/ws/{workspaceSlug}/drive":      onRoot("root cannot be changed"),
	"MOVE /v1/ws/{workspaceSlug}/drive":      onRoot("root cannot be changed"),
	"UNLOCK /v1/ws/{workspaceSlug}/drive":    onRoot("Lock-Token"),
	"LOCK /v1/ws/{workspaceSlug}/drive":      inSpace("/drive", lockBody, "Content-Type", "application/xml"),
	"PROPPATCH /v1/ws/{workspaceSlug}/drive": inSpace("/drive", proppatchBody, "Content-Type", "application/xml"),
}

const (
	lockBody      = `<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>`
	proppatchBody = `<propertyupdate xmlns="DAV:"><set><prop><a xmlns="urn:x">1</a></prop></set></propertyupdate>`
)

func (sc *scene) space(suffix string) string { return "/v1/ws/" + sc.slug + suffix }

func fixed(target string) func(*scene) exampleRequest {
	return func(*scene) exampleRequest { return exampleRequest{target: target} }
}

func above(target string) func(*scene) exampleRequest {
	return func(*scene) exampleRequest { return exampleRequest{target: target, headers: headers{"Depth": "1"}} }
}

func fixedBody(target, body string) func(*scene) exampleRequest {
	return func(*scene) exampleRequest { return exampleRequest{target: target, body: body} }
}

func fixedForm(target, body, told string) func(*scene) exampleRequest {
	return func(*scene) exampleRequest {
		return exampleRequest{target: target, body: body, headers: headers{"Content-Type": "application/x-www-form-urlencoded"}, refusal: told}
	}
}

func inSpace(suffix, body string, header ...string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		in := exampleRequest{target: sc.space(suffix), body: body, headers: headers{}}
		for i := 0; i < len(header); i += 2 {
			in.headers[header[i]] = header[i+1]
		}
		return in
	}
}

func toOther(sc *scene) exampleRequest {
	return exampleRequest{target: sc.space("/drive/a.txt"), headers: headers{"Destination": sc.space("/drive/c.txt")}}
}

func onRoot(told string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/drive"), headers: headers{"Destination": sc.space("/drive/c")}, refusal: told}
	}
}

// unlocked ends a lock that the owner has just taken, if the workspace allows that.
func unlocked(sc *scene) exampleRequest {
	r := request(sc.t, sc.stage.node.Server, "LOCK", sc.space("/drive/a.txt"), sc.people["owner"].key, lockBody, "Content-Type", "application/xml")
	return exampleRequest{target: sc.space("/drive/a.txt"), headers: headers{"Lock-Token": r.Header().Get("Lock-Token")}, refusal: "made by someone else"}
}

// self returns the account behind the visitor, or the account host if there is none.
func (sc *scene) self() account {
	if who, ok := sc.people[sc.as]; ok {
		return who
	}
	return sc.people["host"]
}

func (sc *scene) ownKey() string {
	id := sc.stage.newID("key_")
	sc.ask(sc.t, entity.KindUser, sc.self().id, &userv1.IssueApiKey{KeyId: id, Name: "x", SecretSha256: make([]byte, 32)})
	return id
}

func (sc *scene) ownSession() string {
	id := sc.stage.newID("key_")
	sc.ask(sc.t, entity.KindUser, sc.self().id, &userv1.StartBrowserSession{Session: &userv1.BrowserSession{
		Id: id, SecretSha256: make([]byte, 32), ExpiresAt: sc.now() + 60_000,
	}})
	return id
}

func (sc *scene) ownGrant() string {
	id := sc.stage.newID("ogr_")
	sc.ask(sc.t, entity.KindUser, sc.self().id, &userv1.AllowGrant{Grant: &userv1.Grant{
		Id: id, ClientId: "oc_1", ClientName: "Client", RedirectHost: "example.com", WorkspaceId: sc.id, Scopes: []string{"files:read"},
	}})
	return id
}

func (sc *scene) ownMachine() string {
	id, device := sc.stage.newID("mch_"), newDevice()
	sc.ask(sc.t, entity.KindDevice, device, &devicev1.ClaimDevice{UserId: sc.self().id, MachineId: id, Name: "laptop"})
	sc.settle(sc.t, device)
	return id
}

// addressed returns an invitation from another workspace to the account behind the visitor.
func (sc *scene) addressed() string {
	id, invitation, host := sc.host(sc.t), sc.stage.newID("inv_"), sc.people["host"]
	email := sc.self().email
	if email == host.email {
		email = "guest@example.com"
	}
	sc.ask(sc.t, entity.KindWorkspace, id, &workspacev1.Invite{
		InvitationId: invitation, Email: email, Role: workspacev1.Role_ROLE_EDITOR, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: host.id, Email: host.email},
	})
	sc.settle(sc.t, id)
	return invitation
}

// newDevice returns a new id of a sync device.
func newDevice() string {
	random := make([]byte, 35)
	rand.Read(random)
	text := base32.StdEncoding.EncodeToString(random)
	id := text[:7]
	for i := 7; i < 56; i += 7 {
		id += "-" + text[i:i+7]
	}
	return id
}

package http_test

import "testing"

// An owner with a disabled account does not count as a remaining owner, and a member with a disabled account becomes no owner.
func TestDisabledMembers(t *testing.T) {
	s := newSite(t)
	alice, _ := s.signUp("alice")
	s.workspace(alice, "acme")
	bob, carol := s.person("bob"), s.person("carol")
	for name, key := range map[string]string{"bob": bob, "carol": carol} {
		s.invite(alice, "acme", name+"@example.com")
		acceptOnly(s, key)
	}
	disable := func(name, value string) {
		t.Helper()
		expect(t, request(t, s.node.Server.Admin(), "PATCH", "/admin/users", "", `{"email":"`+name+`@example.com","disabled":`+value+`}`), 200, "")
	}
	member := func(method, name, as, body string, status int, want string) {
		t.Helper()
		expect(t, request(t, s.node.Server, method, "/v1/ws/acme/members/"+s.idOf(name), as, body), status, want)
	}
	disable("carol", "true")
	member("PATCH", "carol", alice, `{"role":"owner"}`, 400, "the account of this member is disabled")
	member("PATCH", "carol", alice, `{"role":"viewer"}`, 200, `"role":"viewer"`)
	disable("carol", "false")
	member("PATCH", "carol", alice, `{"role":"owner"}`, 200, `"role":"owner"`)

	disable("alice", "true")
	member("PATCH", "carol", carol, `{"role":"viewer"}`, 409, `"final_owner"`)
	member("DELETE", "carol", carol, "", 409, `"final_owner"`)
	disable("alice", "false")
	member("PATCH", "carol", carol, `{"role":"viewer"}`, 200, `"role":"viewer"`)
	member("PATCH", "bob", carol, `{"role":"owner"}`, 403, "forbidden")
}

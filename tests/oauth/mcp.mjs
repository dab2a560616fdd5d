// The client of the MCP TypeScript SDK with a provider that has no state(). The server has no MCP endpoint: the transport
// needs only one that refuses a POST without a token, and the authorized requests go to the API. Usage: node mcp.mjs URL
// COOKIE. No output is success.
import assert from 'node:assert/strict'
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { withOAuth } from '@modelcontextprotocol/sdk/client/middleware.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { decide } from './person.mjs'

const [server, cookie] = process.argv.slice(2)

// Provider keeps in memory what the SDK asks it to.
class Provider {
  redirectUrl = 'http://localhost:4713/callback'
  clientMetadata = {
    client_name: 'An MCP client', redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
  }
  clientInformation() { return this.client }
  saveClientInformation(client) { this.client = client }
  tokens() { return this.saved }
  saveTokens(tokens) { this.saved = tokens }
  saveCodeVerifier(verifier) { this.verifier = verifier }
  codeVerifier() { return this.verifier }
  redirectToAuthorization(url) { this.asked = url }
}

const provider = new Provider()
const endpoint = new URL('/v1/ws/acme/invites', server)

const transport = new StreamableHTTPClientTransport(endpoint, { authProvider: provider })
const client = () => new Client({ name: 'test', version: '1.0.0' })
await assert.rejects(client().connect(transport), UnauthorizedError)
assert.equal(provider.asked.searchParams.has('state'), false)
assert.equal(provider.asked.searchParams.get('resource'), new URL(server).origin)

let ticked
const back = await decide(provider.asked, cookie, 'allow', (scopes) => { ticked = scopes })
assert.ok(back.href.startsWith(provider.redirectUrl + '?'), back.href)
assert.equal(back.searchParams.has('state'), false)
assert.deepEqual(ticked, provider.asked.searchParams.get('scope').split(' '))

await transport.finishAuth(back.searchParams.get('code'))
assert.equal(provider.saved.token_type, 'Bearer')
// With the token, the request passes authentication and authorization: it is refused because it is no invitation.
const authorized = new StreamableHTTPClientTransport(endpoint, { authProvider: provider })
await assert.rejects(client().connect(authorized), { code: 400 })

const request = withOAuth(provider, server)(fetch)
const who = await (await request(new URL('/v1/whoami', server))).json()
assert.equal(who.credential.kind, 'oauth')

// An access token that is not valid any more is replaced with the refresh token.
const first = provider.saved
provider.saved = { ...first, access_token: first.access_token.slice(0, -4) + 'aaaa' }
assert.equal((await request(new URL('/v1/whoami', server))).status, 200)
assert.notEqual(provider.saved.refresh_token, first.refresh_token)

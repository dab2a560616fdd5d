// The client of the MCP TypeScript SDK, with a provider that has no state(), signs in at the tools for agents and calls some.
// Usage: node mcp.mjs URL COOKIE. No output is success.
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
const endpoint = new URL('/mcp', server)

const transport = new StreamableHTTPClientTransport(endpoint, { authProvider: provider })
const client = () => new Client({ name: 'test', version: '1.0.0' })
await assert.rejects(client().connect(transport), UnauthorizedError)
assert.equal(provider.asked.searchParams.has('state'), false)
assert.equal(provider.asked.searchParams.get('resource'), endpoint.href)
assert.equal(provider.asked.searchParams.get('scope'), 'files:read files:write services sessions')

let ticked
const back = await decide(provider.asked, cookie, 'allow', (scopes) => { ticked = scopes })
assert.ok(back.href.startsWith(provider.redirectUrl + '?'), back.href)
assert.equal(back.searchParams.has('state'), false)
assert.deepEqual(ticked, provider.asked.searchParams.get('scope').split(' '))

await transport.finishAuth(back.searchParams.get('code'))
assert.equal(provider.saved.token_type, 'Bearer')

const agent = client()
await agent.connect(new StreamableHTTPClientTransport(endpoint, { authProvider: provider }))
const { tools } = await agent.listTools()
assert.ok(tools.some((tool) => tool.name === 'read_activity'))
const call = async (name, input) => {
  const result = await agent.callTool({ name, arguments: input })
  assert.ok(!result.isError, JSON.stringify(result.content))
  return result.structuredContent
}
const [{ slug }] = (await call('list_workspaces', {})).workspaces
assert.equal((await call('write_file', { workspace: slug, path: 'notes/one.txt', text: 'Hello' })).created, true)
assert.equal((await call('read_file', { workspace: slug, path: 'notes/one.txt' })).text, 'Hello')
const { rows } = await call('read_activity', { workspace: slug, path: 'notes' })
assert.equal(rows.at(-1).event.path, 'notes/one.txt')
assert.equal((await agent.callTool({ name: 'read_file', arguments: { workspace: slug, path: '../x' } })).isError, true)

// The token is valid for the tools alone.
const bearer = { authorization: `Bearer ${provider.saved.access_token}` }
assert.equal((await fetch(new URL('/v1/whoami', server), { headers: bearer })).status, 401)

// An access token that is not valid any more is replaced with the refresh token.
const first = provider.saved
provider.saved = { ...first, access_token: first.access_token.slice(0, -4) + 'aaaa' }
const request = withOAuth(provider, endpoint)(fetch)
const answer = await request(endpoint, {
  method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
  headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
})
assert.equal(answer.status, 200)
assert.notEqual(provider.saved.refresh_token, first.refresh_token)
await agent.close()

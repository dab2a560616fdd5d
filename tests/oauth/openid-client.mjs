// An application that uses openid-client as its documentation says. The server announces PKCE, so the documented flow
// sends no state. Usage: node openid-client.mjs URL COOKIE. No output is success.
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import * as client from 'openid-client'
import { decide } from './person.mjs'

const [server, cookie] = process.argv.slice(2)
const redirect_uri = 'http://127.0.0.1:4711/callback'
const scope = 'files:read sessions'

const resource = await discoverResource()
const config = await client.dynamicClientRegistration(
  new URL(resource.authorization_servers[0]),
  { client_name: 'openid-client', redirect_uris: ['http://127.0.0.1/callback'], token_endpoint_auth_method: 'none' },
  client.None(),
  { algorithm: 'oauth2', execute: [client.allowInsecureRequests] },
)
assert.ok(config.serverMetadata().supportsPKCE())
assert.match(config.clientMetadata().client_id, /^oc_/)

await completes()
await returnsState()
await defaultsToTheLeastScope()
await detectsReplays()
await revokes()
await isDenied()

async function discoverResource() {
  const at = new URL(server)
  const answer = await oauth.resourceDiscoveryRequest(at, { [oauth.allowInsecureRequests]: true })
  return oauth.processResourceDiscoveryResponse(at, answer)
}

// authorize follows the documented flow: a state only where the server does not support PKCE.
async function authorize(decision = 'allow', parameters = { scope }, ticked) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const asked = client.buildAuthorizationUrl(config, {
    redirect_uri, resource: resource.resource, ...parameters,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier), code_challenge_method: 'S256',
  })
  const back = await decide(asked, cookie, decision, ticked)
  assert.ok(back.href.startsWith(redirect_uri + '?'), back.href)
  const checks = { pkceCodeVerifier, expectedState: parameters.state }
  return client.authorizationCodeGrant(config, back, checks, { resource: resource.resource })
}

// whoami asks the API with a token; null where it opens nothing.
async function whoami(token) {
  try {
    const answer = await client.fetchProtectedResource(config, token, new URL('/v1/whoami', server), 'GET')
    assert.equal(answer.status, 200)
    return await answer.json()
  } catch (error) {
    assert.ok(error instanceof client.WWWAuthenticateChallengeError, error)
    assert.equal(error.cause[0].scheme, 'bearer')
    return null
  }
}

function refused(promise, error) {
  return assert.rejects(promise, (e) => {
    assert.ok(e instanceof client.ResponseBodyError, e)
    assert.equal(e.error, error)
    return true
  })
}

async function completes() {
  const first = await authorize()
  assert.equal(first.token_type, 'bearer')
  assert.equal(first.expires_in, 900)
  assert.equal(first.scope, scope)
  const who = await whoami(first.access_token)
  assert.deepEqual(who.credential, { kind: 'oauth', audience: resource.resource })
  assert.deepEqual(who.scopes, ['api_key', 'ws:acme:files:read', 'ws:acme:sessions'])
  const second = await client.refreshTokenGrant(config, first.refresh_token, { resource: resource.resource })
  assert.notEqual(second.refresh_token, first.refresh_token)
  assert.ok(await whoami(second.access_token))
}

// A short state is returned as it was sent.
async function returnsState() {
  assert.ok((await authorize('allow', { scope, state: 'x' })).access_token)
}

async function defaultsToTheLeastScope() {
  let ticked
  const tokens = await authorize('allow', {}, (scopes) => { ticked = scopes })
  assert.deepEqual(ticked, ['files:read'])
  assert.equal(tokens.scope, 'files:read')
}

async function detectsReplays() {
  const first = await authorize()
  const second = await client.refreshTokenGrant(config, first.refresh_token)
  assert.ok(await whoami(second.access_token))
  await refused(client.refreshTokenGrant(config, first.refresh_token), 'invalid_grant')
  assert.equal(await whoami(second.access_token), null)
  await refused(client.refreshTokenGrant(config, second.refresh_token), 'invalid_grant')
}

async function revokes() {
  for (const which of ['access_token', 'refresh_token']) {
    const tokens = await authorize()
    assert.ok(await whoami(tokens.access_token))
    await client.tokenRevocation(config, tokens[which], { token_type_hint: which })
    await client.tokenRevocation(config, tokens[which])
    assert.equal(await whoami(tokens.access_token), null)
    await refused(client.refreshTokenGrant(config, tokens.refresh_token), 'invalid_grant')
  }
}

async function isDenied() {
  await assert.rejects(authorize('deny'), (e) => {
    assert.ok(e instanceof client.AuthorizationResponseError, e)
    assert.equal(e.error, 'access_denied')
    return true
  })
}

// What a program in JavaScript does to act for a person, with openid-client and oauth4webapi. The person is played by
// a browser without scripts: it follows the page's form. Usage: node client.mjs URL COOKIE; silence is success.
import assert from 'node:assert/strict'
import * as oauth from 'oauth4webapi'
import * as client from 'openid-client'

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
await detectsReplays()
await revokes()
await isDenied()

async function discoverResource() {
  const at = new URL(server)
  const answer = await oauth.resourceDiscoveryRequest(at, { [oauth.allowInsecureRequests]: true })
  return oauth.processResourceDiscoveryResponse(at, answer)
}

// authorize has the person decide, and takes what comes back to the redirect URI for tokens.
async function authorize(decision = 'allow') {
  const pkceCodeVerifier = client.randomPKCECodeVerifier()
  const expectedState = client.randomState()
  const asked = client.buildAuthorizationUrl(config, {
    redirect_uri, scope, state: expectedState, resource: resource.resource,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier), code_challenge_method: 'S256',
  })
  const back = await decide(asked, decision)
  assert.ok(back.href.startsWith(redirect_uri + '?'), back.href)
  return client.authorizationCodeGrant(config, back, { pkceCodeVerifier, expectedState }, { resource: resource.resource })
}

async function decide(asked, decision) {
  const page = await fetch(asked, { headers: { cookie }, redirect: 'manual' })
  assert.equal(page.status, 200)
  const html = await page.text()
  const form = new URLSearchParams({ decision })
  for (const [, name, value] of html.matchAll(/<input type="(?:hidden|checkbox)" name="([^"]*)" value="([^"]*)"/g)) {
    form.append(name, text(value))
  }
  form.set('workspace', text(html.match(/<option value="([^"]*)"/)[1]))
  const action = new URL(text(html.match(/<form method="post" action="([^"]*)"/)[1]), asked)
  const answer = await fetch(action, {
    method: 'POST', body: form, redirect: 'manual', headers: { cookie, origin: asked.origin, 'sec-fetch-site': 'same-origin' },
  })
  assert.equal(answer.status, 303, await answer.text())
  return new URL(answer.headers.get('location'))
}

function text(html) {
  return html.replaceAll('&#43;', '+').replaceAll('&#34;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&')
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

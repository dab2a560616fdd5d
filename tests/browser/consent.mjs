// Answers the consent page in Chromium with JavaScript disabled, for an application whose redirect URI redirects further: to a page
// on another port, which is another origin, or to the scheme of an installed application. Usage: node consent.mjs SCENE, which is
// JSON. There is no output on success.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'

const scene = JSON.parse(process.argv[2])
const password = 'curiouser and curiouser'
const appScheme = 'com.example.app:'
// patience limits every wait, in milliseconds. It is generous because the machine may be busy.
const patience = 180_000

const elsewhere = await serve((_, response) => {
  response.setHeader('content-type', 'text/html')
  response.end('<!doctype html><title>Application</title><h1>Back at the application</h1>')
})
const application = await serve((request, response) => {
  const { pathname, search } = new URL(request.url, 'http://127.0.0.1')
  response.writeHead(302, { location: (pathname === '/page' ? originOf(elsewhere) : appScheme) + '/done' + search })
  response.end()
})
const browser = await chromium.launch({
  executablePath: scene.chromium, timeout: patience,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
})
try {
  const metadata = await (await fetch(scene.url + '/.well-known/oauth-authorization-server')).json()
  const context = await browser.newContext({ javaScriptEnabled: false })
  await choosesPassword(context)
  const wrong = {
    invalid_scope: { scope: 'nonsense' }, invalid_request: { code_challenge: '', code_challenge_method: '' }, invalid_target: { resource: 'https://elsewhere.example' },
    unsupported_response_mode: { response_mode: 'fragment' }, unsupported_response_type: { response_type: 'token' },
  }
  for (const path of ['/page', '/app']) {
    const request = await register(metadata, originOf(application) + path)
    await answers(context, request, path, 'code', (page) => press(page, 'Allow'))
    await answers(context, request, path, 'access_denied', (page) => press(page, 'Deny'))
    await answers(context, request, path, 'invalid_scope', async (page) => {
      await page.locator('form').evaluate((form) => { form.action = form.action.replace('scope=files%3Aread', 'scope=nonsense') })
      await press(page, 'Allow')
    })
    for (const [outcome, parameters] of Object.entries(wrong)) await signsIn({ ...request, ...parameters }, path, outcome)
  }
} finally {
  await browser.close()
  for (const server of [application, elsewhere]) {
    server.close()
    server.closeAllConnections()
  }
}

async function serve(answer) {
  const server = createServer(answer)
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
  return server
}

function originOf(server) { return `http://127.0.0.1:${server.address().port}` }

async function open(context) {
  const page = await context.newPage()
  page.setDefaultTimeout(patience)
  page.on('console', (message) => assert.notEqual(message.type(), 'error', message.text()))
  return page
}

function press(page, name) {
  return page.getByRole('button', { name, exact: true }).click()
}

async function choosesPassword(context) {
  const page = await open(context)
  await page.goto(scene.link)
  await page.getByLabel('New password').fill(password)
  await page.getByLabel('Repeat the password').fill(password)
  await press(page, 'Set password and sign in')
  await page.waitForURL('**/account**')
}

// register registers an application and returns the parts of its authorization request.
async function register(metadata, redirect_uri) {
  const registered = await (await fetch(metadata.registration_endpoint, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ client_name: 'Tea Time', redirect_uris: [redirect_uri] }),
  })).json()
  return {
    endpoint: metadata.authorization_endpoint, response_type: 'code', client_id: registered.client_id, redirect_uri, scope: 'files:read',
    state: 'a state that nobody guesses', code_challenge: createHash('sha256').update('v'.repeat(43)).digest('base64url'), code_challenge_method: 'S256',
  }
}

function addressOf({ endpoint, ...parameters }) { return endpoint + '?' + new URLSearchParams(parameters) }

// answers opens the consent page and answers it. The browser must arrive where the application's redirect URI leads.
async function answers(context, request, path, outcome, answer) {
  const page = await open(context)
  await page.goto(addressOf(request))
  await page.getByRole('heading', { name: 'Allow Tea Time?' }).waitFor()
  await arrives(page, path, outcome, answer)
}

// signsIn makes an authorization request with an error in a browser without a session.
async function signsIn(request, path, outcome) {
  const context = await browser.newContext({ javaScriptEnabled: false })
  const page = await open(context)
  await page.goto(addressOf(request))
  await page.getByLabel('Email').fill('alice@example.com')
  await page.getByLabel('Password').fill(password)
  await arrives(page, path, outcome, () => press(page, 'Sign in'))
  await context.close()
}

// arrives waits until the browser asks for the page elsewhere, or for an application of the scheme, with the outcome.
async function arrives(page, path, outcome, act) {
  const target = (path === '/page' ? originOf(elsewhere) : appScheme) + '/done?'
  const [arrived] = await Promise.all([page.waitForRequest((request) => request.url().startsWith(target)), act(page)])
  const query = new URLSearchParams(arrived.url().slice(target.length))
  assert.ok(outcome === 'code' ? query.has('code') : query.get('error') === outcome, arrived.url())
  assert.equal(query.get('state'), 'a state that nobody guesses')
  if (path === '/page') await page.getByRole('heading', { name: 'Back at the application' }).waitFor()
  await page.close()
}

// Tests the web pages in Chromium with JavaScript disabled. Usage: node pages.mjs SCENE, which is JSON. There is no output on
// success. Each page that look visits is checked with axe-core in both colour schemes.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const scene = JSON.parse(process.argv[2])
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const password = 'curiouser and curiouser'
// patience limits every wait, in milliseconds. It is generous because the machine may be busy.
const patience = 180_000

const browser = await chromium.launch({
  executablePath: scene.chromium, timeout: patience,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
})
const copy = await (await browser.newContext()).newPage()
copy.setDefaultTimeout(patience)
try {
  await readsTheReference()
  await signsIn()
  await setsPassword()
  await endsSessions()
  await makesAKey()
  await makesALimitedKey()
  await changesThePassword()
  await forgetsThePassword()
  await newcomerAccepts()
  await personAccepts()
  await deadEnds()
  await allowsAnApplication()
  await formsFromElsewhere()
} finally {
  await browser.close()
}

// open returns a page in a new browser context. Errors on its console, such as violations of the content security policy, fail the
// test in leave.
async function open() {
  const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 1000, height: 760 }, colorScheme: 'light' })
  const page = await context.newPage()
  page.setDefaultTimeout(patience)
  page.complaints = []
  page.on('console', (message) => {
    if (message.type() === 'error' && !/the server responded with a status of 4/.test(message.text())) page.complaints.push(message.text())
  })
  return page
}

async function leave(page) {
  assert.deepEqual(page.complaints, [])
  await page.context().close()
}

// look checks a page: one main heading, no axe-core violations, and no horizontal scrolling on a telephone.
async function look(page, name, whole = true) {
  await page.waitForLoadState()
  assert.equal(await page.locator('h1').count(), 1, name)
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme })
    assert.deepEqual(await axeViolations(await page.content(), colorScheme), [], `${name} in ${colorScheme}`)
    await picture(page, `${name}-${colorScheme}`)
  }
  await page.setViewportSize({ width: 360, height: 740 })
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  assert.ok(over <= 0, `${name} is ${over} pixels too wide for a telephone`)
  await picture(page, `${name}-narrow`, whole)
  await page.setViewportSize({ width: 1000, height: 760 })
  await page.emulateMedia({ colorScheme: 'light' })
}

// readsTheReference goes from the contents to an operation, and from there to a schema.
async function readsTheReference() {
  const page = await open()
  await page.goto(scene.url + '/docs')
  await look(page, 'reference', false)
  await page.getByRole('navigation').getByRole('link', { name: 'List the workspace\'s members' }).click()
  await at(page, '/docs')
  const members = page.locator('#listMembers')
  await members.getByText('Errors: 400').click()
  await members.getByText('another list').waitFor()
  await members.getByRole('link', { name: 'Member', exact: true }).click()
  await page.waitForURL((url) => url.hash === '#schema-Member')
  await page.locator('#schema-Member').getByText('isBillingUser').first().waitFor()
  await leave(page)
}

// axeViolations returns the violations that axe-core finds. axe-core needs JavaScript, so it runs on a copy of the content.
async function axeViolations(content, colorScheme) {
  await copy.emulateMedia({ colorScheme })
  await copy.setContent(content)
  await copy.evaluate(axe)
  const found = await copy.evaluate(() => globalThis.axe.run(document))
  return found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')}`)
}

async function picture(page, name, whole = false) {
  if (scene.pictures) await page.screenshot({ path: join(scene.pictures, name + '.png'), fullPage: whole })
}

function at(page, path) {
  return page.waitForURL((url) => url.pathname + url.search === path)
}

// focused waits until a field has the focus. A browser sets it some time after the page has loaded.
function focused(field) {
  return field.and(field.page().locator(':focus')).waitFor()
}

// waitForCount waits until a locator matches a number of elements. The browser may be loading the next page, which can have the
// same address.
async function waitForCount(locator, wanted) {
  const deadline = Date.now() + patience
  while (await locator.count() !== wanted && Date.now() < deadline) await new Promise((later) => setTimeout(later, 20))
  assert.equal(await locator.count(), wanted)
}

function press(page, name) {
  return page.getByRole('button', { name, exact: true }).click()
}

async function enter(page, secret = password) {
  await page.getByLabel('Email').fill('alice@example.com')
  await page.getByLabel('Password').fill(secret)
  await press(page, 'Sign in')
}

async function signsIn() {
  const page = await open()
  await page.goto(scene.url + '/')
  await at(page, '/sign-in?next=%2Faccount')
  assert.equal(await page.title(), 'Sign in – Atelier')
  await focused(page.getByLabel('Email'))
  assert.ok(await page.getByRole('link', { name: 'Continue with Example' }).isVisible())
  await look(page, 'sign-in')
  await enter(page, 'wrong')
  assert.equal(await page.getByRole('alert').textContent(), 'The email or the password is wrong.')
  assert.equal(await page.getByLabel('Email').inputValue(), 'alice@example.com')
  assert.equal(await page.getByLabel('Password').getAttribute('aria-describedby'), 'problem')
  await look(page, 'sign-in-wrong')
  await leave(page)
}

// setsPassword uses the keyboard only.
async function setsPassword() {
  const page = await open()
  await page.goto(scene.link)
  await look(page, 'set-password')
  await focused(page.getByLabel('New password'))
  await page.keyboard.type(password)
  await page.keyboard.press('Tab')
  const ring = await page.locator(':focus').evaluate((e) => [e.name, getComputedStyle(e).outlineStyle, getComputedStyle(e).outlineWidth])
  assert.deepEqual(ring, ['again', 'solid', '3px'], 'the focused field has an outline')
  await page.keyboard.type('something else')
  await page.keyboard.press('Enter')
  await page.getByRole('alert').waitFor()
  await look(page, 'set-password-wrong')
  await focused(page.getByLabel('New password'))
  await page.keyboard.type(password)
  await page.keyboard.press('Tab')
  await page.keyboard.type(password)
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await at(page, '/account?done=password')
  assert.equal(await page.getByRole('status').textContent(), 'Your password is set.')
  const [cookie] = await page.context().cookies()
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Lax' && cookie.path === '/', JSON.stringify(cookie))
  await page.goto(scene.link)
  assert.equal(await page.getByRole('heading').textContent(), 'This link is no longer valid')
  await leave(page)
}

async function endsSessions() {
  const here = await open()
  await here.goto(scene.url + '/account')
  await enter(here)
  await at(here, '/account')
  const there = await open()
  await there.goto(scene.url + '/account')
  await enter(there)
  await at(there, '/account')
  await look(here, 'account')

  await here.reload()
  const rows = here.getByRole('region', { name: 'Where you are signed in' }).getByRole('listitem')
  assert.equal(await rows.count(), 3) // setsPassword has left a third session
  assert.equal(await here.getByText('this browser').count(), 1)
  assert.match(await rows.first().textContent(), /Chrome on Linux/)
  for (let left = 2; left > 0; left--) {
    await rows.filter({ hasNotText: 'this browser' }).first().getByRole('button', { name: 'End' }).click()
    await at(here, '/account?done=session')
    await waitForCount(rows, left)
  }
  await there.reload()
  await at(there, '/sign-in?next=%2Faccount')

  await press(here, 'Sign out')
  await at(here, '/sign-in')
  await here.goBack()
  await here.goto(scene.url + '/account')
  await at(here, '/sign-in?next=%2Faccount')
  // The remaining cookie gives no access. It records that the person has used this browser.
  assert.deepEqual((await here.context().cookies()).map((c) => c.name), ['atelier-known'])
  await leave(here)
  await leave(there)
}

async function signedIn() {
  const page = await open()
  await page.goto(scene.url + '/account')
  await enter(page)
  await at(page, '/account')
  return page
}

async function makesAKey() {
  const page = await signedIn()
  await page.getByLabel('Name', { exact: true }).fill('  ')
  await press(page, 'Create key')
  assert.equal(await page.getByRole('alert').textContent(), 'Name is blank.')
  await focused(page.getByLabel('Name', { exact: true })) // the field with the error has the focus
  await look(page, 'account-key-wrong')
  await page.getByLabel('Name', { exact: true }).fill('Laptop')
  await page.keyboard.press('Tab')
  await page.keyboard.press('ArrowDown') // from 90 days to a year
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Your new API key' }).waitFor()
  const field = page.getByLabel('Laptop')
  const key = await field.inputValue()
  assert.match(key, /^atl_/)
  assert.ok(!page.url().includes(key) && !(await page.title()).includes(key))
  await focused(field)
  assert.ok(await field.evaluate((e) => e.readOnly), 'the key can be copied but not edited')
  await look(page, 'key')
  const whoami = (secret) => fetch(scene.url + '/v1/whoami', { headers: { authorization: 'Bearer ' + secret } })
  assert.equal((await whoami(key)).status, 200)
  await page.getByRole('link', { name: 'Back to your account' }).click()
  await at(page, '/account')
  assert.ok(!(await page.content()).includes(key))
  await look(page, 'account-with-keys')
  await page.getByRole('listitem').filter({ hasText: 'Laptop' }).getByRole('button', { name: 'Revoke' }).click()
  await at(page, '/account?done=key')
  assert.equal(await page.getByText('Laptop').count(), 0)
  assert.equal((await whoami(key)).status, 401)
  await leave(page)
}

async function makesALimitedKey() {
  const page = await signedIn()
  const limits = page.getByRole('group', { name: 'Permissions' })
  assert.ok(!(await limits.isVisible()), 'the limits of a key without limits are hidden')
  await page.getByLabel('Name', { exact: true }).fill('Reader')
  await page.getByLabel('only what you select here').check()
  await limits.waitFor()
  await look(page, 'account-key-limits')
  await press(page, 'Create key')
  assert.equal(await page.getByRole('alert').textContent(), 'Select at least one permission.')
  assert.ok(await page.getByLabel('only what you select here').isChecked(), 'the choice is kept')
  await page.getByLabel('Read files and who did what to them').check()
  await page.getByLabel('read only').check()
  await look(page, 'account-key-limits-chosen')
  await press(page, 'Create key')
  await page.getByRole('heading', { name: 'Your new API key' }).waitFor()
  const key = await page.getByLabel('Reader').inputValue()
  assert.match(key, /^atllim_/)
  const whoami = await fetch(scene.url + '/v1/whoami', { headers: { authorization: 'Bearer ' + key } })
  assert.ok((await whoami.json()).scopes.every((s) => s === 'api_key' || s.endsWith(':files:read')))
  await page.getByRole('link', { name: 'Back to your account' }).click()
  await at(page, '/account')
  const row = page.getByRole('listitem').filter({ hasText: 'Reader' })
  assert.match(await row.textContent(), /limited.*: files:read, read only/s)
  await look(page, 'account-with-limited-key')
  await row.getByRole('button', { name: 'Revoke' }).click()
  await at(page, '/account?done=key')
  await leave(page)
}

async function changesThePassword() {
  const page = await signedIn()
  await page.getByLabel('Current password').fill('wrong')
  await press(page, 'Choose a new password')
  assert.equal(await page.getByRole('alert').textContent(), 'The password is wrong.')
  await focused(page.getByLabel('Current password'))
  await look(page, 'account-password-wrong')
  await page.keyboard.type(password)
  await page.keyboard.press('Enter')
  await page.waitForURL(/\/set-password\?token=/)
  await sets(page)
  await leave(page)
}

async function sets(page) {
  await page.getByLabel('New password').fill(password)
  await page.getByLabel('Repeat the password').fill(password)
  await press(page, 'Set password and sign in')
  await at(page, '/account?done=password')
}

async function forgetsThePassword() {
  const page = await open()
  await page.goto(scene.url + '/sign-in')
  await page.getByRole('link', { name: 'Forgot your password?' }).click()
  await at(page, '/sign-in/forgotten')
  await focused(page.getByLabel('Email'))
  await look(page, 'forgotten')
  await page.keyboard.type('alice@example.com')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Check your mail' }).waitFor()
  await look(page, 'forgotten-asked')
  await page.goto(await (await fetch(scene.mail + 'alice@example.com')).text())
  await sets(page)
  await leave(page)
}

async function newcomerAccepts() {
  const page = await open()
  await page.goto(scene.newcomer)
  assert.equal(await page.getByRole('heading').textContent(), 'Join Wonderland')
  await look(page, 'invitation')
  await page.getByLabel('Your name').fill('Bob')
  await press(page, 'Accept the invitation')
  await page.waitForURL(/\/set-password\?token=/)
  await sets(page)
  assert.equal(await page.getByRole('heading', { level: 1 }).textContent(), 'Bob')
  await page.goto(scene.known)
  await page.getByText('You are signed in as bob@example.com').waitFor()
  await look(page, 'invitation-of-another')
  await press(page, 'Sign out')
  await page.getByRole('link', { name: 'Sign in to accept' }).waitFor()
  await page.goto(scene.newcomer)
  assert.equal(await page.getByRole('heading').textContent(), 'This invitation was already accepted')
  await look(page, 'invitation-accepted')
  await leave(page)
}

async function personAccepts() {
  const page = await open()
  await page.goto(scene.known)
  await look(page, 'invitation-of-somebody-known')
  await page.getByRole('link', { name: 'Sign in to accept' }).click()
  await enter(page)
  await page.waitForURL(scene.known)
  await press(page, 'Accept the invitation')
  await at(page, '/account?done=joined')
  await look(page, 'account-joined')
  await leave(page)
}

async function deadEnds() {
  const page = await open()
  for (const [path, name] of [[scene.spent, 'link-spent'], [scene.url + '/invitations/nonsense', 'nothing-here']]) {
    await page.goto(path)
    await look(page, name)
  }
  await page.goto(scene.url + '/sign-in/oidc')
  assert.equal(await page.getByRole('heading').textContent(), 'Temporarily unavailable')
  page.complaints = page.complaints.filter((text) => !/a status of 503/.test(text))
  await leave(page)
}

// allowsAnApplication checks that the content security policy of the consent page permits the redirect to the application.
async function allowsAnApplication() {
  const answers = []
  const waiting = createServer((request, response) => {
    answers.push(request.url)
    response.setHeader('content-type', 'text/html')
    response.end('<!doctype html><title>Application</title><h1>Back at the application</h1>')
  })
  await new Promise((listening) => waiting.listen(0, '127.0.0.1', listening))
  try {
    const redirect_uri = `http://127.0.0.1:${waiting.address().port}/callback`
    const metadata = await (await fetch(scene.url + '/.well-known/oauth-authorization-server')).json()
    const registered = await (await fetch(metadata.registration_endpoint, {
      method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ client_name: 'Tea Time', redirect_uris: ['http://127.0.0.1/callback'], token_endpoint_auth_method: 'none' }),
    })).json()
    const asked = new URL(metadata.authorization_endpoint)
    asked.search = new URLSearchParams({
      response_type: 'code', client_id: registered.client_id, redirect_uri, scope: 'files:read files:write sessions', state: 'a state that nobody guesses',
      code_challenge: createHash('sha256').update('v'.repeat(43)).digest('base64url'), code_challenge_method: 'S256', resource: metadata.issuer,
    })
    const page = await open()
    await page.goto(asked.href)
    await enter(page)
    await page.getByRole('heading', { name: 'Allow Tea Time?' }).waitFor()
    await look(page, 'consent')
    await press(page, 'Allow')
    await page.getByRole('heading', { name: 'Back at the application' }).waitFor()
    assert.match(answers.find((url) => url.startsWith('/callback')), /[?&]code=/)
    await page.goto(scene.url + '/account')
    await look(page, 'account-with-application')
    await page.getByRole('listitem').filter({ hasText: 'Tea Time' }).getByRole('button', { name: 'Revoke' }).click()
    await at(page, '/account?done=grant')
    assert.equal(await page.getByText('Tea Time').count(), 0)
    await leave(page)
  } finally {
    waiting.close()
    waiting.closeAllConnections()
  }
}

// formsFromElsewhere submits forms from another site. They must have no effect.
async function formsFromElsewhere() {
  const evil = createServer((request, response) => {
    response.setHeader('content-type', 'text/html')
    response.end(`<!doctype html><title>Evil</title><form method="post" action="${scene.url}${request.url}">
      <input name="email" value="alice@example.com"><input name="password" value="${password}"><button>Win a prize</button></form>`)
  })
  await new Promise((listening) => evil.listen(0, '127.0.0.1', listening))
  try {
    const page = await open()
    for (const path of ['/sign-in', '/sign-out']) {
      await page.goto(`http://localhost:${evil.address().port}${path}`)
      await press(page, 'Win a prize')
      await page.waitForURL(scene.url + path)
      assert.equal(await page.getByRole('heading').textContent(), 'Not allowed')
    }
    await look(page, 'from-elsewhere')
    assert.deepEqual(await page.context().cookies(), [])
    await leave(page)
  } finally {
    evil.close()
    evil.closeAllConnections()
  }
}

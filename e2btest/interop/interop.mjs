// Drives an emulator with the official JavaScript SDKs. Takes E2B_API_URL,
// E2B_SANDBOX_URL and E2B_API_KEY from the environment, prints a line for each
// check and exits with status 0 only if all of them held, but for those in
// differences.mjs, which must not hold.
//
// With E2B_INTEROP_MARK it leaves two sandboxes behind on purpose, one running
// and one paused, whose processes carry that word in their command lines:
// run.sh looks for them before and after it stops the emulator. With
// E2B_INTEROP_README it also runs the code in JavaScript of that README.

import { code, contexts, languages } from './code.mjs'
import { commands, terminals } from './commands.mjs'
import { forks, metrics, network, snapshots } from './control.mjs'
import { content, directories, events, signedUrls } from './files.mjs'
import { fail, SDK, total, until } from './harness.mjs'
import { lifecycle, lists, timeouts } from './lifecycle.mjs'
import { quickstart } from './quickstart.mjs'

const limitMs = 180_000

const topics = {
  lifecycle, timeouts, lists,
  commands, terminals,
  content, directories, events, signedUrls,
  metrics, snapshots, forks, network,
  code, languages, contexts,
}

// leave starts what run.sh expects the end of the emulator to end: a process
// that left its session, and the same frozen in a paused sandbox.
async function leave({ Sandbox }, mark) {
  for (const pause of [false, true]) {
    const sandbox = await Sandbox.create('base', { timeoutMs: 600_000 })
    await sandbox.commands.run(`setsid sh -c 'echo $0 >/data/left; while :; do sleep 1; done' ${mark} >/dev/null 2>&1 &`)
    await until('a process to leave behind', () => sandbox.files.read('/data/left'), (s) => s === `${mark}\n`)
    if (pause) await sandbox.pause()
  }
}

const limit = setTimeout(() => {
  console.log(`FAIL  not done after ${limitMs / 1000} s`)
  process.exit(1)
}, limitMs)

try {
  const releases = [
    new SDK('e2b 2.45.0', '2.45.0', await import('e2b-pinned'), await import('code-pinned')),
    new SDK('e2b newest', 'newest', await import('e2b'), await import('@e2b/code-interpreter')),
  ]
  // At the same time, since much of it is waiting.
  await Promise.all(releases.map(async (sdk) => {
    for (const [name, run] of Object.entries(topics)) await sdk.topic(name, run)
    sdk.done()
  }))
  const readme = process.env.E2B_INTEROP_README
  if (readme) await releases[1].topic('quickstart', (t) => quickstart(t, readme))
  if (process.env.E2B_INTEROP_MARK) await leave(releases[1].base, process.env.E2B_INTEROP_MARK)
} catch (error) {
  fail('no error', error?.stack ?? String(error))
}
clearTimeout(limit)
console.log(`${total.held} checks held, ${total.known} differ as known, ${total.failed} failed`)
process.exit(total.failed === 0 && total.held > 0 ? 0 : 1)

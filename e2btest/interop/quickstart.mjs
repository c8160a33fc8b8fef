// The quickstart in JavaScript that the README prints, run as it is printed.

import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { promisify } from 'node:util'

// quickstart takes the code from the section of the README on the emulator.
// What each line prints is its comment.
export async function quickstart(t, readme) {
  const section = (await readFile(readme, 'utf8')).split(/^## /m).find((part) => part.startsWith('Emulator\n')) ?? ''
  const source = section.match(/^```js\n(.*?)^```$/ms)?.[1] ?? ''
  const printed = [...source.matchAll(/console\.log\(.*\) \/\/ (.*)$/gm)].map((match) => `${match[1]}\n`).join('')
  if (printed === '') throw new Error(`the section Emulator of ${readme} has no code in js that prints`)
  const file = new URL('readme-quickstart.mjs', import.meta.url)
  await writeFile(file, source)
  const { stdout } = await promisify(execFile)(process.execPath, [file.pathname], { timeout: 60_000 })
  t.same("the README's quickstart prints what it says", stdout, printed)
}

// Code with contexts, by @e2b/code-interpreter.

import { thrown } from './harness.mjs'

const create = async (t) => t.own(await t.code.Sandbox.create({ timeoutMs: 120_000 }))

export async function code(t) {
  const sandbox = await create(t)
  const lines = (messages) => messages.map((m) => m.line).join('')
  const seen = { out: [], err: [], results: [], errors: [] }
  const handlers = {
    onStdout: (m) => seen.out.push(m),
    onStderr: (m) => seen.err.push(m),
    onResult: (r) => seen.results.push(r),
    onError: (e) => seen.errors.push(e),
  }
  const first = await sandbox.runCode('import sys\nx = 41\nprint("out")\nprint("err", file=sys.stderr)\nx + 1', handlers)
  t.same('the value of code', [first.text, first.error, first.results.length], ['42', undefined, 1])
  t.same('its logs', [first.logs.stdout.join(''), first.logs.stderr.join('')], ['out\n', 'err\n'])
  t.check('its result is the main one', first.results[0].isMainResult, first.results)
  t.same('output as it came', [lines(seen.out), lines(seen.err)], ['out\n', 'err\n'])
  t.same('results as they came', seen.results.map((r) => r.text), ['42'])
  t.same('which lines are errors', [seen.out[0].error, seen.err[0].error], [false, true])
  t.same('variables stay', (await sandbox.runCode('x += 1; x')).text, '42')

  const failed = await sandbox.runCode('1/0', handlers)
  t.same('an exception', [failed.error?.name, failed.error?.value], ['ZeroDivisionError', 'division by zero'])
  t.match('its traceback', failed.error?.traceback, /ZeroDivisionError/)
  t.same('the exception as it came', seen.errors.map((e) => e.name), ['ZeroDivisionError'])

  const envs = { WORD: 'deep' }
  t.same('variables of the environment', (await sandbox.runCode('import os; os.environ["WORD"]', { envs })).text, 'deep')
  t.same('for one call only', (await sandbox.runCode('os.environ.get("WORD", "none")')).text, 'none')
  const html = 'from IPython.display import HTML, display\ndisplay(HTML("<b>x</b>"))\n{"a": [1]}'
  const shown = await sandbox.runCode(html)
  t.same('results in other forms', shown.results.map((r) => r.html), ['<b>x</b>', undefined])
  t.check('one of them is the main one', shown.results[1]?.isMainResult && !shown.results[0].isMainResult, shown.results)

  await t.throws('code that takes too long', () => sandbox.runCode('while True: pass', { timeoutMs: 500 }), t.code.TimeoutError)
}

export async function languages(t) {
  const sandbox = await create(t)
  const js = await sandbox.runCode('let y = 20; console.log("out"); y * 2', { language: 'js' })
  t.same('js code runs', [js.text, js.logs.stdout.join(''), js.error], ['40', 'out\n', undefined])
  t.same('variables of js stay', (await sandbox.runCode('y + 1', { language: 'javascript' })).text, '21')
  const wrong = await sandbox.runCode('throw new TypeError("no")', { language: 'js' })
  t.match('an exception of js', `${wrong.error?.name} ${wrong.error?.value}`, /TypeError|no/)
  const bash = await sandbox.runCode('z=7; echo "bash $z"', { language: 'bash' })
  t.same('bash code runs', [bash.logs.stdout.join(''), bash.error], ['bash 7\n', undefined])
  t.same('variables of bash stay', (await sandbox.runCode('echo $z', { language: 'bash' })).logs.stdout.join(''), '7\n')
  for (const [language, source] of Object.entries({
    r: 'cat(1)', java: 'System.out.print(1);', typescript: 'const n: number = 1; console.log(n)',
  })) {
    const { value } = await thrown(() => sandbox.runCode(source, { language }))
    t.check(`${language} code runs`, value && !value.error && value.logs.stdout.join('').startsWith('1'), value)
  }
}

export async function contexts(t) {
  const sandbox = await create(t)
  const list = async () => (await sandbox.listCodeContexts()).map((c) => c.id)
  const before = await list()
  const one = await sandbox.createCodeContext({ cwd: '/tmp' })
  const two = await sandbox.createCodeContext({ language: 'js' })
  t.same('a context has what was asked for', [one.language, one.cwd, two.language], ['python', '/tmp', 'javascript'])
  t.same('the list has both', (await list()).sort(), [...before, one.id, two.id].sort())
  t.same('its directory', (await sandbox.runCode('import os; os.getcwd()', { context: one })).text, '/tmp')
  await sandbox.runCode('v = "one"', { context: one })
  t.same('a context keeps variables', (await sandbox.runCode('v', { context: one })).text, 'one')
  t.same('no other has them', (await sandbox.runCode('v')).error?.name, 'NameError')
  t.same('a context has its language', (await sandbox.runCode('[1, 2].length', { context: two })).text, '2')

  await sandbox.runCode('w = [1, 2]')
  t.same('pause of a sandbox with code', await sandbox.pause(), true)
  const again = await t.code.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
  t.same('variables stay after pause and connect', (await again.runCode('sum(w)')).text, '3')
  t.same('those of a context too', (await again.runCode('v', { context: one })).text, 'one')

  await again.restartCodeContext(one.id)
  t.same('restart forgets them', (await again.runCode('v', { context: one })).error?.name, 'NameError')
  await again.removeCodeContext(one)
  await again.removeCodeContext(two.id)
  t.same('remove takes them from the list', (await list()).filter((id) => [one.id, two.id].includes(id)), [])
  const gone = await thrown(() => again.runCode('1', { context: one }))
  t.check('code in a removed context is an error', gone.error, gone.value)
}

import { Kernel, KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';

import { parseFacts, type KernelFacts, type Mode } from './facts';

/** Milliseconds after which a kernel is taken not to answer. */
const TIMEOUT = 3000;

/**
 * Ask a kernel for its facts over the control channel, which is answered while a cell runs.
 *
 * Gives null when no answer comes; rejects when the kernel restarts or ends meanwhile.
 */
export async function requestFacts(kernel: Kernel.IKernelConnection): Promise<KernelFacts | null> {
  return parseFacts(await ask(kernel, 'status', {}));
}

/** Ask a kernel to remember a mode; false when it does not answer. */
export async function requestMode(kernel: Kernel.IKernelConnection, mode: Mode): Promise<boolean> {
  const reply = await ask(kernel, 'mode', { mode });
  if (reply?.status === 'error') {
    throw new Error(String(reply.message));
  }
  return reply !== null;
}

/**
 * Ask a kernel, before its first cell, for the mode stored with its notebook.
 *
 * Runs in silence, leaves no name behind, and does nothing where hpu_magic is not installed.
 */
export async function restoreMode(kernel: Kernel.IKernelConnection, mode: Mode): Promise<void> {
  const code = [
    'try:',
    `    __import__("hpu_magic.magics.control", fromlist=["_"]).restore_mode("${mode}")`,
    'except ImportError:',
    '    pass'
  ].join('\n');
  await kernel.requestExecute({
    code,
    silent: true,
    store_history: false,
    stop_on_error: false,
    allow_stdin: false
  }).done;
}

async function ask(
  kernel: Kernel.IKernelConnection,
  what: 'status' | 'mode',
  content: JSONObject
): Promise<JSONObject | null> {
  // The types know the protocol's own messages only.
  const message = KernelMessage.createMessage({
    msgType: `hpu_magic_${what}_request`,
    channel: 'control',
    username: kernel.username,
    session: kernel.clientId,
    content
  } as unknown as KernelMessage.IOptions<KernelMessage.IDebugRequestMsg>);
  const future = kernel.sendControlMessage(message, true, true);
  let timer: number | undefined;
  const timeout = new Promise<null>(resolve => {
    timer = window.setTimeout(() => resolve(null), TIMEOUT);
  });
  try {
    const reply = await Promise.race([future.done, timeout]);
    return (reply?.content as unknown as JSONObject | undefined) ?? null;
  } finally {
    window.clearTimeout(timer);
    future.dispose();
  }
}

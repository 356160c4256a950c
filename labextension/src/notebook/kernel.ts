import { Kernel, KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';

import { parseFacts, type KernelFacts, type Mode } from './facts';

/** Milliseconds after which a kernel is taken to be stuck. */
const TIMEOUT = 3000;

/** Milliseconds by which a reply may come after the notice that its request is done with. */
const OVERTAKING = 500;

/** Why there is no reply: the request is unknown to the kernel, or the kernel does not listen. */
export type Silence = 'unknown' | 'stuck';

/**
 * Ask a kernel for its facts over the control channel, which is answered while a cell runs.
 *
 * Rejects when the kernel restarts or ends meanwhile.
 */
export async function requestFacts(
  kernel: Kernel.IKernelConnection
): Promise<KernelFacts | Silence> {
  const reply = await ask(kernel, 'status', {});
  return typeof reply === 'string' ? reply : (parseFacts(reply) ?? 'unknown');
}

/** Ask a kernel to remember a mode; false when it does not answer. */
export async function requestMode(kernel: Kernel.IKernelConnection, mode: Mode): Promise<boolean> {
  const reply = await ask(kernel, 'mode', { mode });
  if (typeof reply === 'string') {
    return false;
  }
  if (reply.status === 'error') {
    throw new Error(String(reply.message));
  }
  return true;
}

/** What a kernel says of outputs: those that were written since, and those it does not know. */
export interface Outputs {
  outputs: Record<string, JSONObject>;
  unknown: string[];
}

/** Ask a kernel what should stand in outputs, by their names and how often they were written. */
export async function requestOutputs(
  kernel: Kernel.IKernelConnection,
  outputs: Record<string, number>
): Promise<Outputs | Silence> {
  const reply = await ask(kernel, 'outputs', { outputs });
  return typeof reply === 'string' ? reply : (reply as unknown as Outputs);
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
  what: 'status' | 'mode' | 'outputs',
  content: JSONObject
): Promise<JSONObject | Silence> {
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
  const silence = new Promise<Silence>(resolve => {
    timer = window.setTimeout(() => resolve('stuck'), TIMEOUT);
    future.onIOPub = published => {
      if (KernelMessage.isStatusMsg(published) && published.content.execution_state === 'idle') {
        window.clearTimeout(timer);
        timer = window.setTimeout(() => resolve('unknown'), OVERTAKING);
      }
    };
  });
  try {
    const reply = await Promise.race([future.done, silence]);
    return typeof reply === 'string' ? reply : (reply?.content as unknown as JSONObject);
  } finally {
    window.clearTimeout(timer);
    future.dispose();
  }
}

import { Kernel, KernelMessage } from '@jupyterlab/services';
import type { JSONObject } from '@lumino/coreutils';

import { parseFacts, type KernelFacts, type Mode } from './facts';

/** Milliseconds without a reply after which a kernel is considered stuck. */
const TIMEOUT = 3000;

/** Milliseconds to wait for a reply after the idle status of its request. */
const OVERTAKING = 500;

/** Why the kernel did not reply: it does not support the request, or it does not respond. */
export type Silence = 'unknown' | 'stuck';

/**
 * Request a kernel's facts on the control channel, which works even while a cell is running.
 *
 * Rejects if the kernel restarts or ends.
 */
export async function requestFacts(
  kernel: Kernel.IKernelConnection
): Promise<KernelFacts | Silence> {
  const reply = await ask(kernel, 'status', {});
  return typeof reply === 'string' ? reply : (parseFacts(reply) ?? 'unknown');
}

/** Request a mode in a kernel. Resolves to false if there is no reply. */
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

/** A kernel's outputs: the content of those with a newer revision, and the unknown names. */
export interface Outputs {
  outputs: Record<string, JSONObject>;
  unknown: string[];
}

/** Request the current content of outputs, given by name and revision. */
export async function requestOutputs(
  kernel: Kernel.IKernelConnection,
  outputs: Record<string, number>
): Promise<Outputs | Silence> {
  const reply = await ask(kernel, 'outputs', { outputs });
  return typeof reply === 'string' ? reply : (reply as unknown as Outputs);
}

/**
 * Set the mode stored in a notebook's file in its kernel, before the first cell is run.
 *
 * The code is silent, defines no names, and does nothing if hpu_magic is not installed.
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
  // The types cover only the protocol's standard messages.
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

import type { IOutput } from '@jupyterlab/nbformat';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

const METADATA = 'hpu_magic';
const WIDGET = 'application/vnd.jupyter.widget-view+json';

/** The identity of an output in its metadata. */
export interface OutputName {
  /** Name of the output in the kernel. */
  output: string;
  /** Number of times that it was written. */
  revision: number;
  /** Whether it is final. */
  over: boolean;
}

/** Return the identity of an output; null if it has none. */
export function named(metadata: ReadonlyPartialJSONObject): OutputName | null {
  const name = metadata[METADATA] as Partial<OutputName> | undefined;
  return typeof name?.output === 'string' && typeof name.revision === 'number'
    ? { output: name.output, revision: name.revision, over: name.over === true }
    : null;
}

/** Return the final form of an output that its kernel no longer has: text and pictures only. */
export function withoutWidget(output: IOutput): IOutput {
  const { [WIDGET]: _, ...data } = (output.data ?? {}) as Record<string, unknown>;
  const metadata = (output.metadata ?? {}) as Record<string, unknown>;
  const name = { ...(metadata[METADATA] as object), over: true };
  return { ...output, data, metadata: { ...metadata, [METADATA]: name } } as IOutput;
}

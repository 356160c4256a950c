import type { IOutput } from '@jupyterlab/nbformat';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

const METADATA = 'hpu_magic';
const WIDGET = 'application/vnd.jupyter.widget-view+json';

/** What an output's metadata say of it. */
export interface OutputName {
  /** By which the kernel knows it. */
  output: string;
  /** How often it has been written. */
  revision: number;
  /** Whether it is as it stays. */
  over: boolean;
}

/** The name of an output; null where it has none. */
export function named(metadata: ReadonlyPartialJSONObject): OutputName | null {
  const told = metadata[METADATA] as Partial<OutputName> | undefined;
  return typeof told?.output === 'string' && typeof told.revision === 'number'
    ? { output: told.output, revision: told.revision, over: told.over === true }
    : null;
}

/** An output as it stays when its kernel knows nothing of it any more: its words and pictures. */
export function withoutWidget(output: IOutput): IOutput {
  const { [WIDGET]: _, ...data } = (output.data ?? {}) as Record<string, unknown>;
  const metadata = (output.metadata ?? {}) as Record<string, unknown>;
  const name = { ...(metadata[METADATA] as object), over: true };
  return { ...output, data, metadata: { ...metadata, [METADATA]: name } } as IOutput;
}

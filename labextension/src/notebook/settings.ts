import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import { DEFAULT_OPTIONS } from '../model/machine';
import { SETTINGS_ID } from '../tokens';
import { PARTS, type Part, type Thresholds } from './labels';

/** The settings that apply to notebooks; see schema/plugin.json. */
export interface NotebookOptions extends Thresholds {
  readonly statusBar: readonly Part[];
  readonly modeSwitch: boolean;
  readonly busyNotifications: boolean;
}

const DEFAULTS: NotebookOptions = {
  memoryWarning: DEFAULT_OPTIONS.memoryWarning,
  memoryCritical: DEFAULT_OPTIONS.memoryCritical,
  statusBar: PARTS,
  modeSwitch: true,
  busyNotifications: true
};

/** Return the parts that a setting such as `{"memory": false}` does not disable. */
export function readParts(setting: unknown): Part[] {
  const chosen = Object(setting) as Partial<Record<Part, unknown>>;
  return PARTS.filter(part => chosen[part] !== false);
}

/** Call `apply` with the settings (or defaults if there is no registry) now and on each change. */
export function followOptions(
  registry: ISettingRegistry | null,
  apply: (options: NotebookOptions) => void
): void {
  apply(DEFAULTS);
  registry
    ?.load(SETTINGS_ID)
    .then(settings => {
      const read = () => {
        const { statusBar, ...others } = settings.composite;
        const chosen = others as Partial<Omit<NotebookOptions, 'statusBar'>>;
        apply({ ...DEFAULTS, ...chosen, statusBar: readParts(statusBar) });
      };
      read();
      settings.changed.connect(read);
    })
    .catch((reason: unknown) => {
      console.error('The settings of hpu_magic cannot be read; using defaults.', reason);
    });
}

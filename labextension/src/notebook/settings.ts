import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import { DEFAULT_OPTIONS } from '../model/machine';
import { SETTINGS_ID } from '../tokens';
import type { Part, Thresholds } from './labels';

/** The settings of what belongs to one notebook; see schema/plugin.json. */
export interface NotebookOptions extends Thresholds {
  readonly statusBar: readonly Part[];
  readonly modeSwitch: boolean;
  readonly busyNotifications: boolean;
}

const DEFAULTS: NotebookOptions = {
  memoryWarning: DEFAULT_OPTIONS.memoryWarning,
  memoryCritical: DEFAULT_OPTIONS.memoryCritical,
  statusBar: ['card', 'mode', 'memory'],
  modeSwitch: true,
  busyNotifications: true
};

/** Call back with the settings, now and at each change; without a registry, with the defaults. */
export function followOptions(
  registry: ISettingRegistry | null,
  apply: (options: NotebookOptions) => void
): void {
  apply(DEFAULTS);
  registry
    ?.load(SETTINGS_ID)
    .then(settings => {
      const read = () =>
        apply({ ...DEFAULTS, ...(settings.composite as Partial<NotebookOptions>) });
      read();
      settings.changed.connect(read);
    })
    .catch((reason: unknown) => console.error(`hpu_magic: settings could not be read: ${reason}`));
}

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { DEFAULT_OPTIONS, Machine } from '../model/machine';
import type { MachineOptions } from '../model/machine';
import { setTranslator } from '../model/translation';
import { IMachine, SETTINGS_ID } from '../tokens';

/** Read the model's options from the user's settings. */
function readOptions(settings: ISettingRegistry.ISettings): MachineOptions {
  const read = (key: keyof MachineOptions): number => {
    const value = settings.get(key).composite;
    return typeof value === 'number' ? value : DEFAULT_OPTIONS[key];
  };
  return {
    interval: read('interval'),
    history: read('history'),
    memoryWarning: read('memoryWarning'),
    memoryCritical: read('memoryCritical')
  };
}

/** Provides the model of the cards and applies the user's settings to it. */
export const machinePlugin: JupyterFrontEndPlugin<Machine> = {
  id: SETTINGS_ID,
  description: 'The state of the Gaudi cards, streamed by the Jupyter server.',
  autoStart: true,
  provides: IMachine,
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): Machine => {
    // No view exists yet, because all views require this model.
    if (translator !== null) {
      setTranslator(translator);
    }
    const machine = new Machine(app.serviceManager.serverSettings);
    const follow = async (registry: ISettingRegistry): Promise<void> => {
      const settings = await registry.load(SETTINGS_ID);
      const apply = () => {
        machine.options = readOptions(settings);
      };
      settings.changed.connect(apply);
      apply();
    };
    if (registry) {
      follow(registry).catch((reason: unknown) => {
        console.error('The settings of hpu_magic cannot be read; using defaults.', reason);
      });
    }
    return machine;
  }
};

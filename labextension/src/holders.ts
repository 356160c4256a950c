import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import type { Machine } from './model/machine';
import { reasonOf } from './model/server';
import type { Card, Holder } from './model/snapshot';
import { cardTitle, holderName, kernelPhrase, shutdownWarning } from './model/wording';
import { trans } from './model/translation';

/** Open or activate a holder's notebook or console. */
export async function goToHolder(commands: CommandRegistry, holder: Holder): Promise<void> {
  const notebook = holder.kernel?.notebook;
  if (!notebook) {
    return;
  }
  const command = notebook.type === 'console' ? 'console:open' : 'docmanager:open';
  await commands.execute(command, { path: notebook.path, activate: true });
}

/** Stop a holder's fit and show any error. Resolves to whether the fit received the request. */
export async function stopHoldersFit(
  machine: Machine,
  card: Card,
  holder: Holder
): Promise<boolean> {
  if (!holder.kernel) {
    return false;
  }
  try {
    await machine.stopFit(card.module_id, holder.kernel.id);
    return true;
  } catch (error) {
    const message = trans.__(
      'The fit of %1 could not be stopped. %2',
      holderName(holder),
      reasonOf(error)
    );
    Notification.error(message, { autoClose: false });
    return false;
  }
}

/**
 * Shut down a holder's kernel after the user has confirmed, and show any error. Resolves to
 * whether the kernel was shut down.
 */
export async function shutDownHolder(
  machine: Machine,
  card: Card,
  holder: Holder
): Promise<boolean> {
  if (!holder.kernel) {
    return false;
  }
  const answer = await showDialog({
    title: trans.__('Shut down %1?', kernelPhrase(holder)),
    body: shutdownWarning(card, holder),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Shut Down') })
    ],
    defaultButton: 0
  });
  if (!answer.button.accept) {
    return false;
  }
  try {
    await machine.shutDownHolder(card.module_id, holder.kernel.id);
    return true;
  } catch (error) {
    const title = cardTitle(card.module_id);
    const message = trans.__('The kernel on %1 was not shut down. %2', title, reasonOf(error));
    Notification.error(message, { autoClose: false });
    return false;
  }
}

import { nullTranslator } from '@jupyterlab/translation';
import type { ITranslator } from '@jupyterlab/translation';

/** This extension's domain in language packs. */
const DOMAIN = 'hpu_magic';

let bundle = nullTranslator.load(DOMAIN);

/** Use `translator` for all texts; call this before any view is created. */
export function setTranslator(translator: ITranslator): void {
  bundle = translator.load(DOMAIN);
}

/**
 * Texts in the user's language. JupyterLab's tools find the texts in the source code by these
 * function names. The values replace `%1`, `%2` and so on; in a plural, `%1` is the number.
 */
export const trans = {
  __: (message: string, ...values: (string | number)[]): string => bundle.__(message, ...values),
  _n: (one: string, many: string, count: number, ...values: (string | number)[]): string =>
    bundle._n(one, many, count, ...values)
};

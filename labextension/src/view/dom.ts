import type { LabIcon } from '@jupyterlab/ui-components';

/** Create an element with a class and children; strings become text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

/** Create a small button with an icon and an accessible label. */
export function iconButton(icon: LabIcon, label: string, onClick: () => void): HTMLButtonElement {
  const button = element('button', 'hpu-IconButton jp-Button jp-mod-minimal');
  button.type = 'button';
  button.title = label;
  button.setAttribute('aria-label', label);
  icon.element({ container: button, tag: 'span', elementSize: 'normal' });
  button.addEventListener('click', event => {
    event.stopPropagation(); // the row is clickable too
    onClick();
  });
  return button;
}

/** Set an element's text if it is different. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Set an attribute if it is different. */
export function setAttribute(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

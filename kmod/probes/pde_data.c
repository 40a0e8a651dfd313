// SPDX-License-Identifier: GPL-2.0-only
/* 359745d78351 ("proc: remove PDE_DATA() completely"), 5.17: before that, it was called PDE_DATA(). */
#include <linux/proc_fs.h>

void *topstat_probe(struct inode *inode)
{
	return pde_data(inode);
}
